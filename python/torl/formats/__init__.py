"""How a model asks for a tool and how it is answered: the part of an episode that differs between papers."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from torl.formats.base import Format
from torl.formats.search_r1 import SearchR1Format
from torl.formats.tora import ToRAFormat
from torl.formats.torl import ToRLFormat
from torl.formats.zerotir import ZeroTIRFormat

FORMATS: MappingProxyType[str, Callable[..., Any]] = MappingProxyType(
    {"torl": ToRLFormat, "zerotir": ZeroTIRFormat, "tora": ToRAFormat, "search_r1": SearchR1Format}
)
"""By the names that a configuration calls them."""

__all__ = ["FORMATS", "Format", "SearchR1Format", "ToRAFormat", "ToRLFormat", "ZeroTIRFormat"]
