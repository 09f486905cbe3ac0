"""Encode the output of a prompt template as token ids. Control tokens in untrusted text are escaped and stay text."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from torl.base.errors import DataError
from torl.base.types import Markup, Problem
from torl.components.text.templates import Conversation, PromptText
from torl.components.text.tokenizer import PlainTextEncoder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# Characters of the private use area around the number of an escaped token.
_BEFORE, _AFTER = "\ue000", "\ue001"
_ESCAPED = re.compile(f"{_BEFORE}(\\d+){_AFTER}")

ToolSchemas: TypeAlias = Sequence[Mapping[str, Any]]
"""The tools for a chat template: for each a "function" with its name, description and parameters."""


class TextTokenizer(Protocol):
    """The methods that prompts need of a tokenizer. Every Hugging Face tokenizer has them."""

    eos_token_id: Any

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, with the special tokens at the start of a document."""
        ...

    def apply_chat_template(self, conversation: Any, /, **options: Any) -> Any:
        """Return the ids of a conversation, or its text, if the tokenizer has a chat template."""
        ...


def opening_ids(tokenizer: TextTokenizer, text: str) -> list[int]:
    """Return the ids of a text that others follow, with the special tokens at the start of a document.

    Raises:
        DataError: The tokenizer ends every text with its end-of-sequence token, which would be inside the sequence.
    """
    token_ids = tokenizer.encode(text)
    ends = [tokenizer.eos_token_id]
    if token_ids[-1:] == ends and tokenizer.encode("a")[-1:] == ends:  # not if the text spells it
        raise DataError(
            "the tokenizer ends prompts with its end-of-sequence token; turn that off in tokenizer_config.json "
            "(add_eos_token)"
        )
    return token_ids


class PromptEncoder:
    """An encoder of prompts. Control tokens that a problem, an environment or a tool spells stay text."""

    def __init__(self, tokenizer: TextTokenizer, plain: PlainTextEncoder | None = None) -> None:
        """Take the tokenizer of the model, and the encoder of plain text, which is made on first use if unset."""
        self.tokenizer, self._encoder = tokenizer, plain
        self.escaper = ControlTokenEscaper(tokenizer)

    def encode(
        self, problem_id: str, prompt: PromptText, escaped: Sequence[str], tools: ToolSchemas = ()
    ) -> tuple[int, ...]:
        """Return the ids of a text, or of a conversation that the model replies to.

        Args:
            problem_id: Id of the problem, for errors.
            prompt: Output of a template.
            escaped: Control tokens that `escaper` took out of the problem.
            tools: Tools for the chat template.

        Raises:
            DataError: The text has half of a surrogate pair, there is no chat template, or it refuses the conversation.
        """
        escaped = [*escaped]
        if isinstance(prompt, Markup):
            parts = unescape(prompt.text, escaped)
            prompt, escaped = "".join(part if isinstance(part, str) else part.text for part in parts), []
        if isinstance(prompt, str):
            try:
                if not escaped:
                    return tuple(opening_ids(self.tokenizer, prompt))
                return (*opening_ids(self.tokenizer, ""), *self._plain.encode_prompt(unescape(prompt, escaped)))
            except (TypeError, UnicodeEncodeError) as error:
                raise DataError(f"problem {problem_id}: its prompt cannot be encoded: {error}") from error
        return self._conversation(
            problem_id,
            prompt if isinstance(prompt, Conversation) else Conversation(prompt),
            escaped,
            self.escaper.escape(tools, escaped),
        )

    def _conversation(
        self, problem_id: str, conversation: Conversation, escaped: Sequence[str], tools: ToolSchemas
    ) -> tuple[int, ...]:
        template = getattr(self.tokenizer, "chat_template", None)
        if not template:
            raise DataError(
                "the model's tokenizer has no chat template, which data.template needs: add the chat_template.jinja of "
                'its family to the model directory, or choose a template that gives a text, such as "chatml"'
            )
        variables = conversation.variables
        if unknown := [name for name in variables if not re.search(rf"\b{re.escape(name)}\b", str(template))]:
            raise DataError(f"the model's chat template has no variable {unknown[0]!r} (data.template.variables)")
        options = {"tools": [*tools] or None, "add_generation_prompt": True, "return_dict": False}
        messages = [dict(message) for message in conversation.messages]
        try:
            if not escaped:
                return tuple(self.tokenizer.apply_chat_template(messages, **options, **variables))
            text: Any = self.tokenizer.apply_chat_template(messages, tokenize=False, **options, **variables)
            return tuple(self._plain.encode_prompt(unescape(text, escaped)))
        except Exception as error:  # a template may fail in any way on untrusted text
            raise DataError(f"problem {problem_id}: the model's chat template refuses it: {error}") from error

    @cached_property
    def _plain(self) -> PlainTextEncoder:
        return self._encoder or PlainTextEncoder(cast("PreTrainedTokenizerFast", self.tokenizer))


class ControlTokenEscaper:
    """Replaces spelled control tokens in untrusted text with numbers while a template is rendered."""

    def __init__(self, tokenizer: Any, *, special_only: bool = False) -> None:
        """Read the added tokens of a Hugging Face tokenizer; without a fast backend it has no added tokens.

        Args:
            tokenizer: Tokenizer of the model.
            special_only: Whether tokens that are not special, such as <tool_call>, stay tokens.
        """
        backend = getattr(tokenizer, "backend_tokenizer", None)
        added = {} if backend is None else backend.get_added_tokens_decoder()
        escaped = {token.content for token in added.values() if token.special or not special_only}
        tokens = escaped | {_BEFORE, _AFTER}
        self._starts = {token[:2] for token in tokens}  # a faster test than the whole pattern
        # Longest first: one token may begin with another.
        self._pattern = re.compile("|".join(map(re.escape, sorted(tokens, key=lambda each: (-len(each), each)))))

    def escape(self, value: Any, escaped: list[str]) -> Any:
        """Return the value with a number instead of each token in its texts; the tokens are appended to `escaped`.

        Keys that are identifiers stay as they are, because templates look them up.
        """
        if isinstance(value, str):
            if not any(start in value for start in self._starts):
                return value
            return self._pattern.sub(lambda found: _number(found[0], escaped), value)
        if isinstance(value, Mapping):
            return {
                key if not isinstance(key, str) or key.isidentifier() else self.escape(key, escaped): self.escape(
                    member, escaped
                )
                for key, member in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.escape(member, escaped) for member in value]
        return value

    def escape_problem(self, problem: Problem, escaped: list[str]) -> Problem:
        """Return the problem with its tokens escaped, or itself if its texts spell none."""
        before = len(escaped)
        question, answer, metadata = self.escape((problem.question, problem.answer, problem.metadata), escaped)
        return (
            problem if len(escaped) == before else replace(problem, question=question, answer=answer, metadata=metadata)
        )


def unescape(text: str, escaped: Sequence[str]) -> list[str | Markup]:
    """Return the parts of a rendered template: its own text as markup, escaped tokens as plain text."""
    pieces = _ESCAPED.split(text)
    return [escaped[int(piece)] if index % 2 else Markup(piece) for index, piece in enumerate(pieces)]


def _number(token: str, escaped: list[str]) -> str:
    escaped.append(token)
    return f"{_BEFORE}{len(escaped) - 1}{_AFTER}"
