"""Formats: how a model calls tools, and how it sees the outcomes."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from torl.components.formats.blocks import FencedFormat as FencedFormat
from torl.components.formats.blocks import TaggedFormat as TaggedFormat
from torl.components.formats.blocks import TaggedOptions as TaggedOptions
from torl.components.formats.chat import ChatFormat as ChatFormat
from torl.components.formats.chat import (
    DeepSeekFormat,
    HarmonyFormat,
    HermesFormat,
    KimiFormat,
    LlamaFormat,
    MistralFormat,
)
from torl.components.formats.chat import require_chat_format as require_chat_format
from torl.components.formats.format import Format as Format

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
