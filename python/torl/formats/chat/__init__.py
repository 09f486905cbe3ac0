"""The formats of chat models, as their chat templates write calls and results."""

from torl.formats.chat.base import ChatFormat, ChatOptions, require_chat_format
from torl.formats.chat.families import DeepSeekFormat, HermesFormat, KimiFormat, MistralFormat
from torl.formats.chat.harmony import HarmonyFormat
from torl.formats.chat.llama import LlamaFormat

__all__ = [
    "ChatFormat",
    "ChatOptions",
    "DeepSeekFormat",
    "HarmonyFormat",
    "HermesFormat",
    "KimiFormat",
    "LlamaFormat",
    "MistralFormat",
    "require_chat_format",
]
