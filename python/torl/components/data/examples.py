"""The content of an example for fine-tuning: a row in one of the public formats, recognized by its fields.

- `messages`: a conversation in OpenAI's format. A message of the model may have a `weight`.
- `conversations`: ShareGPT's format (`from` and `value`), OpenAI's, or texts of a user and of the model in turn (LIMA).
- `prompt` and `completion` (or `response`), texts or lists of messages: TRL's format. Only the completion is trained.
- `problem` (or `question`) and `response` (or `solution`): the problem is put into the prompt template of the run.
- `instruction`, optionally `input` or `context`, and `output` (or `response`): Alpaca's and Dolly's formats. All but
  the last are the problem.
- `segments`, each with `label` and `text`: Axolotl's format. Only segments whose label is true are trained.
- `text`: a document, trained as a whole.
- trajectories as torl records and samples them.

Conversations may have a `system` message and `tools` of the row. A problem with these, or with LLaMA-Factory's
`history`, is a conversation.

A result of a tool in the text of a response, as the run's format writes it, is an observation
(`torl.components.formats.results`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from torl.base.errors import DataError
from torl.base.inputs import parse_json
from torl.base.types import Problem
from torl.components.data.dialogues import Messages, read_conversation, read_messages, with_system
from torl.components.data.example_tools import read_tools
from torl.components.data.rows import (
    LABEL,
    QUESTION_PARTS,
    SYSTEM_FIELDS,
    TOOL_FIELDS,
    SkippedRowError,
    describe,
    has_value,
    is_missing,
    note_unread,
    read_mark,
    require_whole_question,
)
from torl.components.data.values import PlainRow, name_columns, plain


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
class PromptCompletion:
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


ExampleContent: TypeAlias = Dialogue | Passages | PromptCompletion | SolvedProblem | RecordedTrajectory
ExampleParser: TypeAlias = Callable[[str, Mapping[str, Any], set[str]], ExampleContent]
"""A function of the location of a row, its fields, and a set that receives the fields inside others that are not
read."""


@dataclass(frozen=True, slots=True)
class ExampleFormat:
    """A format of examples.

    Attributes:
        fields: Fields that a row of the format has.
        read: Function that reads a row.
        optional: Other fields that it reads. None: all of the row.
    """

    fields: tuple[str, ...]
    read: ExampleParser
    optional: tuple[str, ...] | None = ()


def read_example(location: str, row: Mapping[str, Any], unread: set[str] | None = None) -> ExampleContent:
    """Return the content of a row, in the first format whose fields it has.

    Args:
        location: Location of the row, for errors.
        row: Fields of the row.
        unread: Set that receives the names of the fields with a value that are not read.

    Raises:
        SkippedRowError: The row has the label of a bad response.
        DataError: The row is in no known format, a value is invalid, or a field would change the prompt or the loss and
            is not read.
    """
    fields = row if isinstance(row, PlainRow) else PlainRow(plain(row))
    unread = set() if unread is None else unread
    for form in EXAMPLE_FORMATS:
        if not any(is_missing(fields.get(name)) for name in form.fields):
            _require_unicode(location, fields)
            if form.optional is None:
                return form.read(location, fields, unread)
            if (
                LABEL in form.optional
                and has_value(fields.get(LABEL))
                and not read_mark(location, LABEL, fields[LABEL])
            ):
                raise SkippedRowError(location, "with_a_false_label", "its label says that its response is a bad one")
            note_unread(location, fields, (*form.fields, *form.optional), unread)
            return form.read(location, fields, unread)
    known = "; ".join(" and ".join(form.fields) for form in EXAMPLE_FORMATS)
    raise DataError(
        f"{location}: not a known format of examples, by its fields {', '.join(sorted(map(str, fields))) or 'none'}; "
        f"expected {known}; finetune.train.columns names fields that are called otherwise"
    )


def _require_unicode(location: str, row: Mapping[str, Any]) -> None:
    """Reject lone surrogates, which JSON allows and tokenizers do not."""
    try:
        json.dumps(row, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{location}: has a lone surrogate: {error.object[error.start :][:1]!r}") from error


def _dialogue(location: str, field: str, row: Mapping[str, Any], read: Messages) -> Dialogue:
    """Return messages with the system message and the tools of the row."""
    messages, weights = with_system(location, field, row, read)
    tools = read_tools(location, row, messages)
    if not read[0]:
        raise DataError(f"{location}: {field!r} is an empty list")
    return Dialogue(messages, weights, tools)


def _read_messages(location: str, row: Mapping[str, Any], unread: set[str]) -> Dialogue:
    return _dialogue(location, "messages", row, read_messages(location, "messages", row["messages"], unread))


def _read_conversation(location: str, row: Mapping[str, Any], unread: set[str]) -> Dialogue:
    return _dialogue(location, "conversations", row, read_conversation(location, row["conversations"], unread))


def _read_segments(location: str, row: Mapping[str, Any], unread: set[str]) -> Passages:
    segments = row["segments"]
    if not isinstance(segments, list) or not all(isinstance(segment, dict) for segment in segments):
        raise DataError(f"{location}: 'segments' must be a list of objects with label and text")
    if not segments:
        raise DataError(f"{location}: 'segments' is an empty list")
    texts, weights = [], []
    for place, segment in enumerate(segments):
        where = f"{location}: segments[{place}]"
        if missing := [name for name in (LABEL, "text") if is_missing(segment.get(name))]:
            raise DataError(f"{where}: {missing[0]!r} is missing{name_columns(segment)}")
        note_unread(where, segment, (LABEL, "text"), unread, " of segments")
        texts.append(_text(where, "text", segment["text"]))
        weights.append(float(read_mark(where, LABEL, segment[LABEL]) is True))
    return Passages(tuple(texts), tuple(weights))


def _completion_reader(name: str) -> ExampleParser:
    def read(location: str, row: Mapping[str, Any], unread: set[str]) -> ExampleContent:
        prompt, completion = row["prompt"], row[name]
        if isinstance(prompt, str) and not _is_conversation(prompt):
            note_unread(location, row, row.keys() - {*SYSTEM_FIELDS, *TOOL_FIELDS}, unread)
            return PromptCompletion(_text(location, "prompt", prompt), _text(location, name, completion))
        if isinstance(completion, str) and not _is_conversation(completion):
            completion = [{"role": "assistant", "content": completion}]
        before, zeros = read_messages(location, "prompt", prompt, unread, trained=False)
        after, weights = read_messages(location, name, completion, unread)
        if not after or not before:
            raise DataError(f"{location}: {name if before else 'prompt'!r} is an empty list")
        return _dialogue(location, "prompt", row, ((*before, *after), (*zeros, *weights)))

    return read


def _is_conversation(text: str) -> bool:
    """Whether a text is the JSON of messages."""
    if not text.lstrip().startswith("["):
        return False
    with suppress(ValueError):
        members = parse_json(text)
        return bool(members) and all(isinstance(each, dict) and {"role", "content"} <= each.keys() for each in members)
    return False


def _solution_reader(question: str, response: str) -> ExampleParser:
    def read(location: str, row: Mapping[str, Any], unread: set[str]) -> ExampleContent:
        text, reply = _text(location, question, row[question]), _text(location, response, row[response])
        if any(has_value(row.get(name)) for name in _OF_CONVERSATIONS):
            require_whole_question(location, unread)
            return _conversation_of(location, row, text, reply, unread)
        metadata = {name: value for name, value in row.items() if name not in (question, response, "answer")}
        answer = row.get("answer")
        return SolvedProblem(Problem(location, text, "" if is_missing(answer) else str(answer), metadata), reply)

    return read


def _instruction_reader(output: str) -> ExampleParser:
    def read(location: str, row: Mapping[str, Any], unread: set[str]) -> ExampleContent:
        given = [name for name in ("instruction", *QUESTION_PARTS) if has_value(row.get(name))]
        text = "\n\n".join(_text(location, name, row[name]) for name in given)
        reply = _text(location, output, row[output])
        if any(has_value(row.get(name)) for name in _OF_CONVERSATIONS):
            return _conversation_of(location, row, text, reply, unread)
        metadata = {name: value for name, value in row.items() if name not in (*given, output)}
        return SolvedProblem(Problem(location, text, "", metadata), reply)

    return read


def _conversation_of(location: str, row: Mapping[str, Any], question: str, reply: str, unread: set[str]) -> Dialogue:
    """Return LLaMA-Factory's form: a system message, tools, and earlier questions with their responses."""
    history = row["history"] if has_value(row.get("history")) else []
    if not isinstance(history, list) or not all(isinstance(turn, list) and len(turn) == 2 for turn in history):
        raise DataError(f"{location}: 'history' must be a list of pairs of a question and a response")
    turns = [
        {"role": role, "content": text}
        for turn in [*history, [question, reply]]
        for role, text in zip(("user", "assistant"), turn, strict=True)
    ]
    return _dialogue(location, "history", row, read_messages(location, "history", turns, unread))


def _text(location: str, field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise DataError(f"{location}: {field!r} must be text, got {describe(value)}")
    return value


_OF_DIALOGUES = (LABEL, *SYSTEM_FIELDS, *TOOL_FIELDS)
_OF_CONVERSATIONS = (*SYSTEM_FIELDS, *TOOL_FIELDS, "history")

EXAMPLE_FORMATS: Sequence[ExampleFormat] = (
    ExampleFormat(
        ("prompt_token_ids", "token_ids", "loss_mask"), lambda _, row, __: RecordedTrajectory(row), optional=None
    ),
    ExampleFormat(("messages",), _read_messages, _OF_DIALOGUES),
    ExampleFormat(("conversations",), _read_conversation, _OF_DIALOGUES),
    ExampleFormat(("segments",), _read_segments, (LABEL,)),
    *(ExampleFormat(("prompt", name), _completion_reader(name), _OF_DIALOGUES) for name in ("completion", "response")),
    *(
        ExampleFormat((question, response), _solution_reader(question, response), ("answer", LABEL, *_OF_CONVERSATIONS))
        for question in ("problem", "question")
        for response in ("response", "solution")
    ),
    *(
        ExampleFormat(
            ("instruction", output), _instruction_reader(output), (LABEL, *QUESTION_PARTS, *_OF_CONVERSATIONS)
        )
        for output in ("output", "response")
    ),
    ExampleFormat(("text",), lambda location, row, _: Passages((_text(location, "text", row["text"]),), (1.0,))),
)
"""The formats of examples: the first whose fields a row has reads it."""
EXAMPLE_FIELDS = frozenset(name for form in EXAMPLE_FORMATS for name in (*form.fields, *(form.optional or ())))
"""The fields that the formats read."""
