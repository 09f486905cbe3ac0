"""Rows of conversations: messages in OpenAI's format, as other libraries record them."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from torl.base.inputs import parse_json
from torl_lab.exchange.tokens import Span, TokenSequence

REFERENCES: Final = ("answer", "solution", "ground_truth", "target", "label")
"""Names that other libraries give to the reference answer."""
_REASONING: Final = ("reasoning_content", "reasoning", "thinking")
_TEXTS: Final = ("text", "value", "content")
_ARGUMENTS: Final = ("arguments", "parameters", "args", "input")
_OF_CALLS: Final = frozenset({"id", "type", "index", "function", "name"})
_CODE: Final = re.compile(r"```(?:python|py)[^\n`]*\n(.*?)```", re.DOTALL)
_CORRECT_REWARD: Final = 1.0


def text_of(content: Any) -> str:
    """Return the text of a message's content: a text, or parts with texts; another value as JSON, null as nothing."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return "" if content is None else json.dumps(content, ensure_ascii=False, default=str)
    parts = (part if isinstance(part, str) else _part_text(part) for part in content)
    return "".join(part for part in parts if part)


def question_of(prompt: Any) -> str:
    """Return the question of a prompt: a text, or the texts of the user's messages."""
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(text_of(message.get("content")) for message in prompt or () if message.get("role") == "user")


def number_samples(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield rows with their indices in their groups."""
    seen: Counter[tuple[int, str]] = Counter()
    for row in rows:
        group = row["step"], row["group"]
        yield row | {"sample": seen[group]}
        seen[group] += 1


def new_row(
    *,
    problem: str,
    question: str,
    reference: Any,
    reward: float,
    correct: bool | None = None,
    answer: str | None = None,
    step: int = 0,
    group: str | None = None,
    sample: int = 0,
    parts: Mapping[str, float] | None = None,
    advantage: float | None = None,
) -> dict[str, Any]:
    """Return a row without a response and without tokens.

    Args:
        problem: Id of the problem.
        question: Text of the problem.
        reference: Reference answer; a list of several is joined.
        reward: Total reward.
        correct: Whether the final answer is correct. Unset: the reward is at least 1.
        answer: Final answer.
        step: Training step.
        group: Name of the group. Unset is the step and the problem.
        sample: Index in the group.
        parts: Parts of the reward.
        advantage: Advantage.
    """
    if isinstance(reference, list | tuple):
        reference = ", ".join(map(str, reference))
    return {
        "step": step,
        "group": group or f"{step}/{problem}",
        "sample": sample,
        "problem": problem,
        "question": question,
        "reference_answer": "" if reference is None else str(reference),
        "answer": answer,
        "correct": reward >= _CORRECT_REWARD if correct is None else correct,
        "grader_failure": None,
        "valid_format": True,
        "reward": float(reward),
        "advantage": advantage,
        "text": "",
        "sampled_text": "",
        "finish_reason": "stop",
        "format": "",
        "tool_calls": [],
        "turns": [],
        "seconds": 0.0,
        **TokenSequence().fields(),
        **({"reward_parts": dict(parts)} if parts else {}),
    }


def add_messages(
    row: dict[str, Any], messages: Sequence[Mapping[str, Any]], spans: Iterable[Span] = ()
) -> dict[str, Any]:
    """Add the messages of a response to a row, from the first one of the model on.

    Args:
        row: Row, which is changed and returned.
        messages: Messages in OpenAI's format.
        spans: Tokens of the messages of the model. Without them, a turn and the observation after it have one position
            each, so that their order is known.

    Raises:
        ValueError: The first message is not the model's.
    """
    if messages and messages[0].get("role") != "assistant":
        raise ValueError(
            f"the first message of a response must be the model's, with the role 'assistant', got the role "
            f"{messages[0].get('role')!r}; leave out the messages of the prompt: new_row takes their question"
        )
    texts: list[str] = []
    sampled: list[str] = []
    pending: dict[str, dict[str, Any]] = {}
    known, stop, after = iter(spans), 0, 0
    for message in messages:
        text = text_of(message.get("content"))
        if message.get("role") == "assistant":
            reasoning = text_of(next((message[name] for name in _REASONING if message.get(name)), None))
            text = f"{reasoning}\n{text}" if reasoning and reasoning not in text else text
            start, stop, after = next(known, (after, after + 1, after + 2))
            made = [*(message.get("tool_calls") or ()), *filter(None, [message.get("function_call")])]
            calls = [_call(call, stop, after) for call in made]
            written = ({"name": call["tool"], "arguments": call["arguments"]} for _, call in calls)
            shown = "\n".join([text, *(json.dumps(each, ensure_ascii=False) for each in written)]).strip("\n")
            add_turn(row, shown, start, stop, "call" if calls else "stop")
            sampled.append(shown)
            texts.append(shown)
            pending = {identity or str(number): call for number, (identity, call) in enumerate(calls)}
            row["tool_calls"] += [call for _, call in calls]
            continue
        texts.append(text)
        found = pending.pop(str(message.get("tool_call_id")), None)
        if found is None and message.get("role") == "tool" and pending:
            found = pending.pop(next(iter(pending)))  # results without ids are in the order of the calls
        if found is None:
            add_user_message(row, text, stop, after)
            continue
        found |= {"text": text, "observation": text}
        if error := message.get("error"):
            kind = error.get("type") if isinstance(error, Mapping) else error
            found |= {"status": "error", "error": str(kind)}
    row["text"], row["sampled_text"] = "\n".join(texts), "\n".join(sampled)
    return row


def add_user_message(row: dict[str, Any], text: str, start: int, stop: int) -> None:
    """Add a message of the user that is a whole observation."""
    row.setdefault("user_messages", []).append({"text": text, "observation": text, "start": start, "stop": stop})


def add_turn(row: dict[str, Any], text: str, start: int, stop: int, reason: str) -> None:
    """Add a turn with its blocks of Python."""
    blocks = [[*found.span(1), start] for found in _CODE.finditer(text)]
    row["turns"].append(
        {"start": start, "stop": stop, "text": text, "stop_reason": reason, "blocks": blocks, "cached_tokens": 0}
    )


def call_row(tool: str | None, arguments: dict[str, Any] | None, text: str, start: int, stop: int) -> dict[str, Any]:
    """Return a call that succeeded with a text."""
    return {
        "tool": tool,
        "arguments": arguments,
        "status": "ok",
        "text": text,
        "error": None,
        "details": {},
        "observation": text,
        "start": start,
        "stop": stop,
        "wait_seconds": 0.0,
    }


def _call(call: Any, start: int, stop: int) -> tuple[str, dict[str, Any]]:
    """Return the id of a call, and its row with an empty result."""
    if isinstance(call, str):
        call = parse_json(call)
    function = call.get("function", call)
    if isinstance(function, str):  # Inspect: {"function": name, "arguments": ...}
        function = {**call, "name": function}
    known = (function[name] for name in _ARGUMENTS if function.get(name) is not None)
    others = {name: value for name, value in function.items() if name not in _OF_CALLS and value is not None}
    arguments: Any = next(known, others)  # of a library with another name for them
    if isinstance(arguments, str):
        try:
            arguments = parse_json(arguments)
        except ValueError:
            arguments = {"arguments": arguments}
    if not isinstance(arguments, Mapping):
        arguments = {"arguments": arguments}
    return str(call.get("id") or ""), call_row(function.get("name"), dict(arguments), "", start, stop)


def _part_text(part: Any) -> str:
    if not isinstance(part, Mapping):
        return ""
    if reasoning := next((part[name] for name in _REASONING if part.get(name)), None):
        return f"{reasoning}\n"
    text = next((part[name] for name in _TEXTS if isinstance(part.get(name), str)), None)
    return f"[{part.get('type') or ', '.join(part)}]" if text is None else str(text)
