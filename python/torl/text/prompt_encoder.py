"""What a template made of a problem, as token ids: what others wrote in it stays text."""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from torl.errors import DataError
from torl.text.chat_templates import Conversation
from torl.text.templates import TemplateOutput
from torl.text.token_escapes import ControlTokenEscaper, unescape
from torl.text.tokenizer import PlainTextEncoder
from torl.types import Markup

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ToolSchemas: TypeAlias = Sequence[Mapping[str, Any]]
"""What a chat template is told of each tool: a "function" with its name, description and parameters."""


class TextTokenizer(Protocol):
    """What is needed of a tokenizer; every Hugging Face tokenizer has it."""

    eos_token_id: Any

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, with the special tokens the model expects at the start of a document."""
        ...

    def apply_chat_template(self, conversation: Any, /, **options: Any) -> Any:
        """Token ids of a conversation, or its text, where the tokenizer has a chat template."""
        ...


class PromptEncoder:
    """Encodes prompts as the tokenizer does, but for control tokens that a problem, an environment or a tool spells."""

    def __init__(self, tokenizer: TextTokenizer, plain: PlainTextEncoder | None = None) -> None:
        """Take the tokenizer of the model, and what encodes its text; made when it is needed first, if unset."""
        self.tokenizer, self._made = tokenizer, plain
        self.spelled = ControlTokenEscaper(tokenizer)

    def encode(
        self, problem_id: str, told: TemplateOutput, held: Sequence[str], tools: ToolSchemas = ()
    ) -> tuple[int, ...]:
        """The ids of a text, or of a conversation where the model answers next.

        Args:
            problem_id: for errors.
            told: what a template gave.
            held: what `spelled` held out of it.
            tools: what a chat template is told of the tools.

        Raises:
            DataError: it is no whole text; there is no chat template, or it refuses the conversation.
        """
        held = [*held]
        if isinstance(told, Markup):
            told, held = "".join(map(_text, unescape(told.text, held))), []
        if isinstance(told, str):
            try:
                if not held:
                    return tuple(self.tokenizer.encode(told))
                return (*self.tokenizer.encode(""), *self._plain.encode_prompt(unescape(told, held)))
            except (TypeError, UnicodeEncodeError) as error:
                raise DataError(f"problem {problem_id}: its prompt cannot be encoded: {error}") from error
        return self._conversation(
            problem_id,
            told if isinstance(told, Conversation) else Conversation(told),
            held,
            self.spelled.escape(tools, held),
        )

    def _conversation(
        self, problem_id: str, conversation: Conversation, held: Sequence[str], tools: ToolSchemas
    ) -> tuple[int, ...]:
        template = getattr(self.tokenizer, "chat_template", None)
        if not template:
            raise DataError(
                "the model's tokenizer has no chat template, which data.template asks for: put the chat_template.jinja "
                'of its family beside the tokenizer, or choose a template with a text of its own, "chatml" for example'
            )
        asked = conversation.variables
        if unknown := [name for name in asked if not re.search(rf"\b{re.escape(name)}\b", str(template))]:
            raise DataError(f"the model's chat template has no variable {unknown[0]!r} (data.template.variables)")
        options = {"tools": [*tools] or None, "add_generation_prompt": True, "return_dict": False}
        messages = [dict(message) for message in conversation.messages]
        try:
            if not held:
                return tuple(self.tokenizer.apply_chat_template(messages, **options, **asked))
            text: Any = self.tokenizer.apply_chat_template(messages, tokenize=False, **options, **asked)
            return tuple(self._plain.encode_prompt(unescape(text, held)))
        except Exception as error:  # a template may fail in any way on what others wrote
            raise DataError(f"problem {problem_id}: the model's chat template refuses it: {error}") from error

    @cached_property
    def _plain(self) -> PlainTextEncoder:
        return self._made or PlainTextEncoder(cast("PreTrainedTokenizerFast", self.tokenizer))


def _text(part: str | Markup) -> str:
    return part if isinstance(part, str) else part.text
