"""How chat models call tools: by their own templates, a family in each file."""

from torl.formats.chat.base import ChatFormat, ChatOptions, require_chat_format
from torl.formats.chat.deepseek import DeepSeekFormat
from torl.formats.chat.harmony import HarmonyFormat
from torl.formats.chat.hermes import HermesFormat
from torl.formats.chat.kimi import KimiFormat
from torl.formats.chat.llama import LlamaFormat
from torl.formats.chat.mistral import MistralFormat

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
