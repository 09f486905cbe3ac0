"""The tokens of a conversation that the program wrote: by the model's own chat template, with texts that stay texts."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torl.rollout.agents.requests import RequestError
from torl.text.prompt_encoder import ControlTokenEscaper, unescape
from torl.text.tokenizer import PlainTextEncoder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class PromptRenderer:
    """Renders conversations; what a message spells of a control token stays text, also behind a template's filters."""

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerFast",
        encoder: PlainTextEncoder,
        variables: Mapping[str, Any] | None = None,
    ) -> None:
        """Take the tokenizer of the model, what encodes its text, and variables of its chat template."""
        self._tokenizer, self._encoder, self._variables = tokenizer, encoder, variables or {}
        self._spelled = ControlTokenEscaper(tokenizer)

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> list[int]:
        """The tokens that the model continues with its message.

        Raises:
            RequestError: the template refuses the conversation.
        """
        held: list[str] = []
        conversation, told = self._spelled.escape(messages, held), self._spelled.escape(tools, held)
        options: dict[str, Any] = {"tools": told or None, "add_generation_prompt": True, "tokenize": False}
        try:
            text: Any = self._tokenizer.apply_chat_template(conversation, **options, **self._variables)
        except Exception as error:  # a template may fail in any way on what a program wrote
            raise RequestError(f"the model's chat template refuses the messages: {error}", "messages") from error
        return self._encoder.encode_observation(unescape(text, held))[0]
