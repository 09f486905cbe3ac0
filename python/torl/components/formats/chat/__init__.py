"""The formats of chat models, as their chat templates write calls and results."""

from torl.components.formats.chat.chat_format import ChatFormat, ChatOptions, require_chat_format
from torl.components.formats.chat.families import DeepSeekFormat, HermesFormat, KimiFormat, MistralFormat
from torl.components.formats.chat.harmony import HarmonyFormat
from torl.components.formats.chat.llama import LlamaFormat

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
