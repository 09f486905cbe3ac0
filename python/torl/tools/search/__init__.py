"""Searching a corpus: by words in this process, or by a retrieval server over HTTP."""

from torl.tools.search.bm25 import Bm25Options, Bm25Tool
from torl.tools.search.server import RetrievalOptions, RetrievalTool

__all__ = ["Bm25Options", "Bm25Tool", "RetrievalOptions", "RetrievalTool"]
