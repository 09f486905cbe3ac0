"""Token ids of examples for fine-tuning, with a weight for the loss of each token.

Prompts, responses and the text between two messages of the model are encoded separately, as in an episode: a model
continues the tokens of a prompt, and cannot merge its first token with their last.
"""

import datetime
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torl.base.errors import DataError
from torl.base.types import Markup
from torl.components.text.prompt_encoder import ControlTokenEscaper, opening_ids, unescape
from torl.components.text.tokenizer import PlainTextEncoder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CHAT_DATE = datetime.date(2024, 7, 26)
"""Date that chat templates print as today's in examples: the one that Llama 3's template prints without a clock."""

REASONING = ("reasoning_content", "reasoning", "thinking")
"""Fields of the thinking of a message: Qwen3's, that of vLLM and OpenRouter, and gpt-oss's."""


@dataclass(slots=True)
class WeightedTokens:
    """A token sequence in the making.

    Attributes:
        token_ids: Tokens.
        weights: Weight of the loss of each token.
        observed: Whether each token is part of a tool's result.
    """

    token_ids: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    observed: list[bool] = field(default_factory=list)

    def add(self, token_ids: Sequence[int], weight: float = 0.0, *, observed: bool = False) -> None:
        """Append tokens. The first token of a sequence gets no weight, because no token predicts it."""
        start = len(self.token_ids)
        self.token_ids += token_ids
        self.weights += [weight if start + index else 0.0 for index in range(len(token_ids))]
        self.observed += [observed] * len(token_ids)


class ExampleEncoder:
    """An encoder of conversations and texts. Control tokens in messages of users and tools stay text."""

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerFast",
        stop_token_ids: Collection[int],
        variables: Mapping[str, Any] | None = None,
        split_results: Callable[[str], Iterable[tuple[str, bool]]] = lambda text: [(text, False)],
        date: datetime.date = CHAT_DATE,
    ) -> None:
        """Configure the encoder.

        Args:
            tokenizer: Tokenizer of the model.
            stop_token_ids: Tokens that end a response.
            variables: Variables of the chat template.
            split_results: Function that splits a text of the model into parts, each with whether it is a tool's result.
            date: Date that chat templates print as today's.
        """
        self._tokenizer, self._plain = tokenizer, PlainTextEncoder(tokenizer)
        self._stops = frozenset(stop_token_ids)
        now = datetime.datetime.combine(date, datetime.time())
        self._variables = {"strftime_now": now.strftime, **(variables or {})}
        self._split_results = split_results
        self._stop_texts = tuple(filter(None, tokenizer.convert_ids_to_tokens(sorted(self._stops))))
        self._end = tokenizer.eos_token_id if tokenizer.eos_token_id in self._stops else min(self._stops)
        self._is_read: dict[tuple[str, str], bool] = {}  # fields of the messages of a role
        # The model's own messages may contain <tool_call> or <think>, which it samples as tokens.
        self._foreign, self._own = ControlTokenEscaper(tokenizer), ControlTokenEscaper(tokenizer, special_only=True)

    def dialogue(
        self,
        messages: Sequence[Mapping[str, Any]],
        weights: Sequence[float],
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> list[WeightedTokens]:
        """Return a conversation as the model's chat template renders it, with the loss on the model's messages.

        A conversation that the model begins has no prompt for its first message, which is therefore not trained.

        Usually this is one sequence. If the template changes earlier messages, as those of reasoning models that drop
        earlier thoughts, each change starts another sequence, so that every message follows the tokens that precede it
        in an episode.

        Args:
            messages: Messages of the conversation.
            weights: Weight of each message. Only messages of the model are trained.
            tools: Schemas of the tools.

        Raises:
            DataError: The chat template is missing, refuses the conversation, leaves out tools, calls, the text before
                them or reasoning, or does not end the model's messages.
        """
        escaped: list[str] = []
        safe = [
            self._own.escape(self._without_end(each), escaped) if _is_own(each) else self._foreign.escape(each, escaped)
            for each in messages
        ]
        schemas = self._foreign.escape(tools, escaped)
        sequences: list[WeightedTokens] = []
        rendered: str | None = None
        replies: list[bool] = []  # whether each message since the model's last one is a tool's
        for place, message in enumerate(safe):
            if not _is_own(message) or place == 0:
                replies.append(message.get("role") == "tool")
                continue
            prompt = self._render(safe[:place], schemas, generation_prompt=True)
            whole = self._render(safe[: place + 1], schemas, generation_prompt=False)
            if not whole.startswith(prompt):
                raise DataError(
                    f"message {place}: the chat template renders the model's message differently than the prompt that "
                    f"the model continues, which ends with {prompt[-40:]!r}; set data.template.variables of "
                    "the template 'chat', or use examples with prompt and completion as texts"
                )
            if rendered is None:
                _require_rendered([("the tool {!r}", each["function"]["name"]) for each in schemas], prompt, place)
            if weights[place]:
                _require_rendered(_parts(message), whole[len(prompt) :], place)
            if rendered is not None and prompt.startswith(rendered):
                between = self._encode(prompt[len(rendered) :], escaped)
                sequences[-1].add(between, observed=bool(replies) and all(replies))
            else:
                sequences.append(WeightedTokens())
                sequences[-1].add(self._plain.encode_prompt(unescape(prompt, escaped)))
            self._add_message(sequences[-1], whole[len(prompt) :], escaped, weights[place], place)
            rendered, replies = whole, []
        return [sequence for sequence in sequences if any(sequence.weights)]

    def unread_fields(self, messages: Sequence[Mapping[str, Any]]) -> set[str]:
        """Return the fields of messages that the chat template does not read: without them, it renders the same text.

        The first message of a role with a field decides for all.
        """
        found = set()
        for message in messages:
            for name in message.keys() - {"role", "content", "tool_calls", *(REASONING if _is_own(message) else ())}:
                key = (message["role"], name)
                if key not in self._is_read:
                    without = [{field: each[field] for field in each if field != name} for each in messages]
                    texts = [self._render(each, (), generation_prompt=False) for each in (messages, without)]
                    self._is_read[key] = texts[0] != texts[1]
                if not self._is_read[key]:
                    found.add(name)
        return found

    def _add_message(
        self, sequence: WeightedTokens, text: str, escaped: Sequence[str], weight: float, place: int
    ) -> None:
        """Add a message of the model, up to its stop token. Text after it, such as a line end, is not trained."""
        *parts, (end, _) = [*self._split_results(text)] or [(text, False)]
        for part, observed in parts:
            sequence.add(self._encode(part, escaped), 0.0 if observed else weight, observed=observed)
        token_ids = self._encode(end, escaped)
        ends = [index for index, token in enumerate(token_ids, start=1) if token in self._stops]
        if not ends:
            raise DataError(
                f"message {place}: the chat template ends the model's message without one of the model's end tokens, "
                "so that its responses would never end; choose the format of the model's family (rollout.format), or "
                "add the token to eos_token_id in generation_config.json"
            )
        sequence.add(token_ids[: ends[-1]], weight)
        sequence.add(token_ids[ends[-1] :])

    def passages(self, texts: Sequence[str], weights: Sequence[float]) -> WeightedTokens:
        """Return texts that follow each other. A trained text at the end is followed by the end token."""
        sequence = WeightedTokens()
        if weights[-1]:
            texts = [*texts[:-1], self._without_line_end(texts[-1])]
        for place, (text, weight) in enumerate(zip(texts, weights, strict=True)):
            sequence.add(opening_ids(self._tokenizer, text) if place == 0 else self._encode_markup(text), weight)
        return self._with_end(sequence, weights[-1])

    def response(self, prompt: Sequence[int], text: str) -> WeightedTokens:
        """Return a prompt with a response, which the end token follows. An empty response is not trained."""
        sequence = WeightedTokens()
        sequence.add(prompt)
        if not text.strip():
            return sequence
        for part, observed in self._split_results(self._without_line_end(text)):
            sequence.add(self._encode_markup(part), float(not observed), observed=observed)
        return self._with_end(sequence, 1.0)

    def _without_line_end(self, text: str) -> str:
        """Return a text without the line end that a chat template puts after the end token."""
        stripped = text.rstrip()
        return stripped if stripped.endswith(self._stop_texts) else text

    def _without_end(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a message of the model without an end token in its text, which the chat template adds."""
        content = message["content"].rstrip()
        end = next((text for text in self._stop_texts if content.endswith(text)), None)
        return message if end is None else {**message, "content": content.removesuffix(end)}

    def _with_end(self, sequence: WeightedTokens, weight: float) -> WeightedTokens:
        if weight and not (sequence.token_ids and sequence.token_ids[-1] in self._stops):
            sequence.add([self._end], weight)
        return sequence

    def _encode(self, text: str, escaped: Sequence[str]) -> list[int]:
        return self._plain.encode_observation(unescape(text, escaped))[0]

    def _encode_markup(self, text: str) -> list[int]:
        return self._plain.encode_observation([Markup(text)])[0]

    def _render(self, messages: Sequence[Any], tools: Sequence[Any], *, generation_prompt: bool) -> str:
        if not getattr(self._tokenizer, "chat_template", None):
            raise DataError(
                "the model's tokenizer has no chat template, which examples with messages need: add the "
                "chat_template.jinja of its family to the model directory"
            )
        options: dict[str, Any] = {"tools": [*tools] or None, "add_generation_prompt": generation_prompt}
        failures: list[Exception] = []
        # DeepSeek's templates take the arguments of calls as text, others as objects.
        for form in (messages, [*map(_with_written_arguments, messages)]):
            try:
                text: Any = self._tokenizer.apply_chat_template(
                    list(form), tokenize=False, **options, **self._variables
                )
            except Exception as error:  # a template may fail in any way on the messages of a file
                failures.append(error)
            else:
                return str(text)
        raise DataError(f"the model's chat template refuses it: {failures[0]}") from failures[0]


def _with_written_arguments(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message with the arguments of its calls as JSON."""
    calls = [
        {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
        for call in message.get("tool_calls", ())
    ]
    return {**message, "tool_calls": calls} if calls else message


def _parts(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield descriptions and texts of the parts of a message that not every chat template knows."""
    for call in message.get("tool_calls", ()):
        yield "the call of {!r}", call["function"]["name"]
    if message.get("tool_calls"):  # templates may drop the thinking
        yield "the text before the call, {!r}", message["content"].rpartition("</think>")[2].strip()
    for name in REASONING:
        if isinstance(reasoning := message.get(name), str):
            yield name, reasoning.strip()


def _require_rendered(parts: Iterable[tuple[str, str]], text: str, place: int) -> None:
    """Raise DataError if the chat template left a part out: the model would learn a message without it."""
    for description, part in parts:
        if part not in text and json.dumps(part)[1:-1] not in text:
            raise DataError(
                f"message {place}: the model's chat template leaves out {description.format(part)}; use examples as "
                "texts (segments, or prompt and completion), or a model whose template renders it"
            )


def _is_own(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "assistant"
