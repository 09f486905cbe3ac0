"""The content of an example for fine-tuning: a row in one of the public formats, recognized by its fields.

- `messages`, optionally `tools`: a conversation in OpenAI's format. A message of the model may have a `weight`.
- `conversations`, optionally `system` and `tools`: ShareGPT's format (`from` and `value`), or OpenAI's.
- `prompt` and `completion` (or `response`), texts or lists of messages: TRL's format. Only the completion is trained.
- `problem` (or `question`) and `response` (or `solution`): the problem is put into the prompt template of the run.
- `instruction`, optionally `input`, and `output`: Alpaca's format. Both together are the problem. With LLaMA-Factory's
  `system` or `history`, it is a conversation.
- `segments`, each with `label` and `text`: Axolotl's format. Only segments whose label is true are trained.
- `text`: a document, trained as a whole.
- trajectories as torl records and samples them.

A result of a tool in the text of a response, as the run's format writes it, is an observation (`torl.formats.results`).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from torl.data.dialogues import read_conversation, read_messages, read_tools
from torl.data.files import describe
from torl.errors import DataError
from torl.types import Problem


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A conversation for the model's own chat template.

    Attributes:
        messages: Messages as chat templates read them.
        weights: Weight of the loss of each message; 0 for messages of others.
        tools: Schemas of the tools.
    """

    messages: tuple[Mapping[str, Any], ...]
    weights: tuple[float, ...]
    tools: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Passages:
    """Texts that follow each other, with the weight of the loss of each. Control tokens that they spell are tokens."""

    texts: tuple[str, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Completion:
    """A text, and the response that a model continues it with."""

    prompt: str
    completion: str


@dataclass(frozen=True, slots=True)
class SolvedProblem:
    """A problem for the prompt template of the run, with a response."""

    problem: Problem
    response: str


@dataclass(frozen=True, slots=True)
class RecordedTrajectory:
    """A row of a trajectory file."""

    row: Mapping[str, Any]


ExampleContent: TypeAlias = Dialogue | Passages | Completion | SolvedProblem | RecordedTrajectory


def read_example(location: str, row: Mapping[str, Any]) -> ExampleContent:
    """Return the content of a row, in the first format whose fields it has.

    Raises:
        DataError: The row is in no known format, or a value is invalid.
    """
    for fields, read in EXAMPLE_FORMATS:
        if all(row.get(field) is not None for field in fields):
            _require_unicode(location, row)
            return read(location, row)
    known = "; ".join(" and ".join(fields) for fields, _ in EXAMPLE_FORMATS)
    raise DataError(
        f"{location}: not a known format of examples, by its fields {', '.join(sorted(map(str, row))) or 'none'}; "
        f"expected {known}; finetune.train.columns names fields that are called otherwise"
    )


def _require_unicode(location: str, row: Mapping[str, Any]) -> None:
    """Reject lone surrogates, which JSON allows and tokenizers do not."""
    try:
        json.dumps(row, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{location}: has a lone surrogate: {error.object[error.start :][:1]!r}") from error


def _read_trajectory(location: str, row: Mapping[str, Any]) -> RecordedTrajectory:
    return RecordedTrajectory(row)


def _read_messages(location: str, row: Mapping[str, Any]) -> Dialogue:
    messages, weights = read_messages(location, "messages", row["messages"])
    return Dialogue(messages, weights, read_tools(location, row, messages))


def _read_conversation(location: str, row: Mapping[str, Any]) -> Dialogue:
    messages, weights = read_conversation(location, row["conversations"], row.get("system"))
    return Dialogue(messages, weights, read_tools(location, row, messages))


def _read_segments(location: str, row: Mapping[str, Any]) -> Passages:
    segments = row["segments"]
    if not isinstance(segments, list) or not all(isinstance(segment, dict) for segment in segments):
        raise DataError(f"{location}: 'segments' must be a list of objects with label and text")
    texts = tuple(_text(location, "segments.text", segment.get("text")) for segment in segments)
    return Passages(texts, tuple(float(bool(segment.get("label"))) for segment in segments))


def _completion_reader(name: str) -> Callable[[str, Mapping[str, Any]], ExampleContent]:
    def read(location: str, row: Mapping[str, Any]) -> ExampleContent:
        prompt, completion = row["prompt"], row[name]
        if isinstance(prompt, str):
            return Completion(_text(location, "prompt", prompt), _text(location, name, completion))
        if isinstance(completion, str):
            completion = [{"role": "assistant", "content": completion}]
        before, _ = read_messages(location, "prompt", prompt)
        after, weights = read_messages(location, name, completion)
        tools = read_tools(location, row, before)
        return Dialogue((*before, *after), (*[0.0] * len(before), *weights), tools)

    return read


def _solution_reader(question: str, response: str) -> Callable[[str, Mapping[str, Any]], SolvedProblem]:
    def read(location: str, row: Mapping[str, Any]) -> SolvedProblem:
        metadata = {name: value for name, value in row.items() if name not in (question, response, "answer")}
        text, answer = _text(location, question, row[question]), row.get("answer")
        problem = Problem(location, text, "" if answer is None else str(answer), metadata)
        return SolvedProblem(problem, _text(location, response, row[response]))

    return read


def _read_instruction(location: str, row: Mapping[str, Any]) -> ExampleContent:
    parts = [_text(location, name, row[name]) for name in ("instruction", "input") if row.get(name)]
    system, history = row.get("system"), row.get("history")
    if (system and isinstance(system, str)) or (history and isinstance(history, list)):
        return _read_earlier_turns(location, row, "\n\n".join(parts))
    metadata = {name: value for name, value in row.items() if name not in ("instruction", "input", "output")}
    return SolvedProblem(Problem(location, "\n\n".join(parts), "", metadata), _text(location, "output", row["output"]))


def _read_earlier_turns(location: str, row: Mapping[str, Any], question: str) -> Dialogue:
    """Return LLaMA-Factory's form of Alpaca's format: a system message, and earlier questions with their responses."""
    history = row.get("history") or []
    if not all(isinstance(turn, list) and len(turn) == 2 for turn in history):
        raise DataError(f"{location}: 'history' must be a list of pairs of a question and a response")
    system = [{"role": "system", "content": row["system"]}] if row.get("system") else []
    turns = [
        {"role": role, "content": text}
        for turn in [*history, [question, row["output"]]]
        for role, text in zip(("user", "assistant"), turn, strict=True)
    ]
    return Dialogue(*read_messages(location, "history", [*system, *turns]))


def _read_document(location: str, row: Mapping[str, Any]) -> Passages:
    return Passages((_text(location, "text", row["text"]),), (1.0,))


def _text(location: str, field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise DataError(f"{location}: {field!r} must be text, got {describe(value)}")
    return value


EXAMPLE_FORMATS: tuple[tuple[tuple[str, ...], Callable[[str, Mapping[str, Any]], ExampleContent]], ...] = (
    (("prompt_token_ids", "token_ids", "loss_mask"), _read_trajectory),
    (("messages",), _read_messages),
    (("conversations",), _read_conversation),
    (("segments",), _read_segments),
    *((("prompt", name), _completion_reader(name)) for name in ("completion", "response")),
    *(
        ((question, response), _solution_reader(question, response))
        for question in ("problem", "question")
        for response in ("response", "solution")
    ),
    (("instruction", "output"), _read_instruction),
    (("text",), _read_document),
)
"""The formats of examples: the fields that a row of each has, and its reader."""
OPTIONAL_FIELDS = ("system", "history", "input", "answer", "tools", "functions")
"""Other fields that the readers of these formats read."""
