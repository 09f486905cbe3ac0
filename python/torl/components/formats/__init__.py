"""Formats: how a model calls tools, and how it sees the outcomes."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from torl.components.formats.blocks import FencedFormat, TaggedFormat, TaggedOptions
from torl.components.formats.chat import (
    ChatFormat,
    DeepSeekFormat,
    HarmonyFormat,
    HermesFormat,
    KimiFormat,
    LlamaFormat,
    MistralFormat,
    require_chat_format,
)
from torl.components.formats.format import Format

FORMATS: Mapping[str, Callable[..., Any] | str] = MappingProxyType(
    {
        "torl": "torl.recipes.torl:ToRLFormat",
        "zerotir": "torl.recipes.zerotir:ZeroTIRFormat",
        "tora": "torl.recipes.tora:ToRAFormat",
        "mathcoder": "torl.recipes.mathcoder:MathCoderFormat",
        "search_r1": "torl.recipes.search_r1:SearchR1Format",
        "retool": "torl.recipes.retool:ReToolFormat",
        "artist": "torl.recipes.artist:ArtistFormat",
        "hermes": HermesFormat,
        "llama3": LlamaFormat,
        "mistral": MistralFormat,
        "deepseek": DeepSeekFormat,
        "kimi": KimiFormat,
        "harmony": HarmonyFormat,
    }
)
"""The formats by the names that a configuration calls them."""

__all__ = [
    "FORMATS",
    "ChatFormat",
    "FencedFormat",
    "Format",
    "TaggedFormat",
    "TaggedOptions",
    "require_chat_format",
]
