"""How a model asks for a tool and how it is answered: the part of an episode that differs between papers."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from torl.formats.artist import ArtistFormat
from torl.formats.base import Format
from torl.formats.chat import (
    ChatFormat,
    DeepSeekFormat,
    HarmonyFormat,
    HermesFormat,
    KimiFormat,
    LlamaFormat,
    MistralFormat,
    require_chat_format,
)
from torl.formats.mathcoder import MathCoderFormat
from torl.formats.retool import ReToolFormat
from torl.formats.search_r1 import SearchR1Format
from torl.formats.tora import ToRAFormat
from torl.formats.torl import ToRLFormat
from torl.formats.zerotir import ZeroTIRFormat

FORMATS: MappingProxyType[str, Callable[..., Any]] = MappingProxyType(
    {
        "torl": ToRLFormat,
        "zerotir": ZeroTIRFormat,
        "tora": ToRAFormat,
        "mathcoder": MathCoderFormat,
        "search_r1": SearchR1Format,
        "retool": ReToolFormat,
        "artist": ArtistFormat,
        "hermes": HermesFormat,
        "llama3": LlamaFormat,
        "mistral": MistralFormat,
        "deepseek": DeepSeekFormat,
        "kimi": KimiFormat,
        "harmony": HarmonyFormat,
    }
)
"""By the names that a configuration calls them."""

__all__ = [
    "FORMATS",
    "ChatFormat",
    "Format",
    "SearchR1Format",
    "ToRAFormat",
    "ToRLFormat",
    "ZeroTIRFormat",
    "require_chat_format",
]
