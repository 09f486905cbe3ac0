"""The formats of chat models, as their chat templates write calls and results."""

from torl.components.formats.chat.chat_format import ChatFormat as ChatFormat
from torl.components.formats.chat.chat_format import ChatOptions as ChatOptions
from torl.components.formats.chat.chat_format import require_chat_format as require_chat_format
from torl.components.formats.chat.families import DeepSeekFormat as DeepSeekFormat
from torl.components.formats.chat.families import HermesFormat as HermesFormat
from torl.components.formats.chat.families import KimiFormat as KimiFormat
from torl.components.formats.chat.families import MistralFormat as MistralFormat
from torl.components.formats.chat.headers import HarmonyFormat as HarmonyFormat
from torl.components.formats.chat.headers import LlamaFormat as LlamaFormat
