"""One trajectory for the page: its texts in segments, its tokens and their numbers, its calls, and its group."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from torl.base.types import UpdateNumbers
from torl.components.text.answers import find_answer, shown_reference
from torl.run.records.tokens import read_token_numbers
from torl_lab.view.facets import invented_in
from torl_lab.view.index import problem_key
from torl_lab.view.rows import Place, brief, facets_json, group_places, reading_rows
from torl_lab.view.sources import TRAINING
from torl_lab.view.tokens import color_tokens

MAX_TOKENS: Final = 20_000
"""Number of tokens in an answer; the page requests further ones."""
MAX_CHARACTERS: Final = 200_000
"""Characters of a text in an answer. The complete row can be downloaded."""


@reading_rows()
def trajectory_json(place: Place, start: int = 0) -> dict[str, Any]:
    """Return a trajectory as JSON, with the numbers of its tokens from `start`.

    Raises:
        RecordError: The row cannot be read, or is not a trajectory.
        LookupError: The index is being built.
    """
    row, target = place.read_row(), place.reader.target
    branches, recorded = row.get("branches", ()), learner_numbers(place, row)
    prompt = row.get("prompt_token_ids", [])
    pieces = place.reader.token_texts(prompt[:MAX_TOKENS])
    # A file of another library may not have a trajectory in each line.
    number = place["line"] + 1
    location = f"{target.origin}, trajectory {number}" if target.origin else f"{place.path}:{number}"
    return {
        "facets": facets_json(place),
        "is_run": target.is_run,
        "location": location,
        "python": _expression(place),
        "test": pytest_source(row, location),
        "problem": {
            "key": problem_key([str(row.get(name, "")) for name in ("problem", "question", "reference_answer")]),
            "question": cut(row.get("question", "")),
            "answer": cut(shown_reference(row.get("reference_answer", ""))),
        },
        "grade": {
            "correct": bool(row["correct"]),
            "answer": cut(row.get("answer")),
            "reward": row["reward"],
            "parts": row.get("reward_parts", {}),
            "turn_rewards": row.get("turn_rewards", []),
            "valid_format": row.get("valid_format", True),
            "failure": row.get("grader_failure"),
            "detail": row.get("grade_detail", ""),
        },
        "format": row.get("format", ""),
        "group": row["group"],
        "seconds": row.get("seconds"),
        "program_answer": cut(row.get("program_answer")),
        "environment_rewards": row.get("environment_rewards", {}),
        "members": [brief(member) for member in group_places(place)],
        "sequence": sequence_json(place, row, start, recorded.get(len(branches))),
        "branches": [sequence_json(place, each, 0, recorded.get(number)) for number, each in enumerate(branches)],
        "prompt": {"tokens": len(prompt), "text": None if pieces is None else cut("".join(pieces))},
    }


def _expression(place: Place) -> str | None:
    """Return the Python that reads the trajectory of a run."""
    if not place.reader.target.is_run:
        return None
    facets = facets_json(place)
    set_name = "" if facets["set"] == TRAINING else f", evaluation_set={facets['set']!r}"
    chosen = f"step={facets['step']}{set_name}"
    return f"list(torl.Run({str(place.reader.target.path)!r}).trajectories({chosen}))[{facets['line']}]"


def learner_numbers(place: Place, row: Mapping[str, Any]) -> dict[int, UpdateNumbers]:
    """Return the learner's numbers of the tokens of an episode's sequences, the branches first, by their place.

    Raises:
        RecordError: The file of the numbers is damaged.
    """
    if not place.reader.target.is_run or facets_json(place)["set"] != TRAINING:
        return {}
    numbers = read_token_numbers(place.reader.target.directory, int(row["step"]))
    own = (str(row["group"]), int(row["sample"]))
    return {key.branch: found for key, found in numbers.items() if (key.group, key.sample) == own}


def sequence_json(
    place: Place, row: Mapping[str, Any], start: int, numbers: UpdateNumbers | None = None
) -> dict[str, Any]:
    """Return the texts, the tokens and the calls of one token sequence."""
    ids = row["token_ids"][start : start + MAX_TOKENS]
    return {
        "segments": list(segments(row)),
        "calls": [
            shorten({name: value for name, value in call.items() if name != "observation"})
            | {"ran": call["tool"] is not None}
            for call in row["tool_calls"]
        ],
        "tokens": {
            "total": len(row["token_ids"]),
            "start": start,
            "ids": ids,
            "texts": place.reader.token_texts(ids) if row["token_ids"] else None,
            "colors": color_tokens(row, start, start + len(ids), numbers, is_run=place.reader.target.is_run),
        },
        "finish": row["finish_reason"],
    }


# --- segments -------------------------------------------------------------------------------------------


def segments(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the turns and observations of a row in order, with their tokens and texts.

    A turn has parts: "text", "code" (a block), "answer" (the last boxed answer) and "invented" (a result that the model
    wrote itself). An observation has the numbers of its calls.
    """
    turns: Sequence[Mapping[str, Any]] = row["turns"]
    answers = [(index, found) for index, turn in enumerate(turns) if (found := find_answer(turn["text"])) is not None]
    observations: dict[int, dict[str, Any]] = {}
    for number, call in enumerate(row["tool_calls"]):
        observations.setdefault(call["start"], _observation(call))["calls"].append(number)
    for message in row.get("user_messages", ()):
        observations.setdefault(message["start"], _observation(message))["messages"].append(cut(message["text"]))
    for index, turn in enumerate(turns):
        invented = invented_in(turn["text"], turn["stop_reason"], row.get("format", ""))
        marks = [(start, stop, "code") for start, stop, *_ in turn["blocks"]]
        marks += [(start, stop, "invented") for start, stop in invented]
        marks += [(answer.start, answer.stop, "answer") for number, answer in answers[-1:] if number == index]
        yield {
            "kind": "turn",
            "start": turn["start"],
            "stop": turn["stop"],
            "reason": turn["stop_reason"],
            "cached": turn.get("cached_tokens", 0),
            "parts": list(_parts(turn["text"], marks)),
        }
        if turn["stop"] in observations:
            yield observations.pop(turn["stop"])
    yield from observations.values()  # of a record whose turns and calls disagree


def _observation(source: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": "observation",
        "start": source["start"],
        "stop": source["stop"],
        "text": cut(source["observation"]),
        "calls": [],
        "messages": [],
    }


def _parts(text: str, marks: Sequence[tuple[int, int, str]]) -> Iterator[dict[str, Any]]:
    position = 0
    for start, stop, kind in sorted(marks):
        if start < position or stop > len(text):
            continue  # within another mark
        if start > position:
            yield {"kind": "text", "text": cut(text[position:start])}
        yield {"kind": kind, "text": cut(text[start:stop])}
        position = stop
    if position < len(text):
        yield {"kind": "text", "text": cut(text[position:])}


def cut(text: Any) -> Any:
    """Return a text of at most `MAX_CHARACTERS`, with a note on the rest; other values as they are."""
    if not isinstance(text, str) or len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]}\n[{len(text) - MAX_CHARACTERS} more characters]"


def shorten(value: Any) -> Any:
    """Return plain JSON with cut texts."""
    if isinstance(value, Mapping):
        return {name: shorten(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [shorten(member) for member in value]
    return cut(value)


_TEMPLATE: Final = '''"""{location}"""

import torl
from torl.components.text.answers import find_answer

RESPONSE = {response!r}


def test_answer_is_found_and_graded_as_recorded() -> None:
    answer = find_answer(RESPONSE)
    assert answer is not None
    assert answer.text == {answer!r}
    with torl.Grader() as grader:
        assert grader.grade({reference!r}, answer.text).correct is {correct}
'''


def pytest_source(row: Mapping[str, Any], location: str) -> str | None:
    """Return the source of a test; None for a response without a boxed answer, or graded by another text."""
    found = find_answer(row["sampled_text"])
    if found is None or found.text != row.get("answer"):
        return None
    return _TEMPLATE.format(
        location=location.replace("\\", "/").replace('"', "'"),
        response=row["sampled_text"],
        answer=found.text,
        reference=row["reference_answer"],
        correct=bool(row["correct"]),
    )
