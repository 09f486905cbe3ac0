"""Problem files, prompt templates and the order in which problems are met."""

from torl.data.paths import resolve_path
from torl.data.problems import load_problems
from torl.data.prompts import EncodedPrompts, TextTokenizer, encode_prompts
from torl.data.sampler import PromptSampler
from torl.data.templates import TEMPLATES, TORL_TEMPLATE, render

__all__ = [
    "TEMPLATES",
    "TORL_TEMPLATE",
    "EncodedPrompts",
    "PromptSampler",
    "TextTokenizer",
    "encode_prompts",
    "load_problems",
    "render",
    "resolve_path",
]
