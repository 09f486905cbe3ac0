"""The tokens of a conversation that the program wrote: by the model's own chat template, with texts that stay texts."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torl.rollout.agents.requests import RequestError
from torl.text.tokenizer import TextEncoder
from torl.types import Markup

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# Stand around the number of what is put back when the template has been filled; of the private use area.
_BEFORE, _BEHIND = "\ue000", "\ue001"
_HELD = re.compile(f"{_BEFORE}(\\d+){_BEHIND}")


class PromptRenderer:
    """Renders conversations; what a message spells of a control token stays text, also behind a template's filters."""

    def __init__(
        self, tokenizer: "PreTrainedTokenizerFast", encoder: TextEncoder, variables: Mapping[str, Any] | None = None
    ) -> None:
        """Take the tokenizer of the model, what encodes its text, and variables of its chat template."""
        self._tokenizer, self._encoder, self._variables = tokenizer, encoder, variables or {}
        added = tokenizer.backend_tokenizer.get_added_tokens_decoder().values()
        spelled = {token.content for token in added} | {_BEFORE, _BEHIND}
        self._spelled = re.compile("|".join(map(re.escape, sorted(spelled, key=lambda each: (-len(each), each)))))

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> list[int]:
        """The tokens that the model continues with its message.

        Raises:
            RequestError: the template refuses the conversation.
        """
        held: list[str] = []
        conversation = [self._hold(message, held) for message in messages]
        options: dict[str, Any] = {"tools": [*tools] or None, "add_generation_prompt": True, "tokenize": False}
        try:
            text: Any = self._tokenizer.apply_chat_template(conversation, **options, **self._variables)
        except Exception as error:  # a template may fail in any way on what a program wrote
            raise RequestError(f"the model's chat template refuses the messages: {error}", "messages") from error
        pieces = _HELD.split(text)
        parts = [held[int(piece)] if place % 2 else Markup(piece) for place, piece in enumerate(pieces)]
        return self._encoder.observe(parts)[0]

    def _hold(self, value: Any, held: list[str]) -> Any:
        """The value with a number in the place of all that is spelled like a control token."""
        if isinstance(value, str):

            def number(found: re.Match[str]) -> str:
                held.append(found[0])
                return f"{_BEFORE}{len(held) - 1}{_BEHIND}"

            return self._spelled.sub(number, value)
        if isinstance(value, Mapping):
            return {key: self._hold(member, held) for key, member in value.items()}
        if isinstance(value, list):
            return [self._hold(member, held) for member in value]
        return value
