"""Rows of trajectories: written rows are read back, and damaged rows are named."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from torl.base.errors import RecordError
from torl.base.types import (
    Block,
    FinishReason,
    Grade,
    Outcome,
    OutcomeStatus,
    Problem,
    Prompt,
    StopReason,
    ToolCall,
    ToolRequest,
    Trajectory,
    Turn,
)
from torl.run.records.files import step_of_file, trajectory_file
from torl.run.records.reading import read_trajectories
from torl.run.records.row_types import MAX_OUTPUT_CHARACTERS
from torl.run.records.rows import (
    TrajectoryRecord,
    decode_line,
    decode_trajectory,
    encode_row,
    encode_trajectory,
)
from torl.run.records.writers import write_trajectories

RIGHT = Grade(1.0, True, "0.5")


def make(text: str = "hé ```python\n", logprobs: object = None, sample: int = 0) -> Trajectory:
    rollout_logprobs = np.array([-0.1, -1e-7, 0.0, -12.345678] if logprobs is None else logprobs, np.float32)
    length = len(rollout_logprobs)
    mask = np.arange(length) != 2
    details = {"stdout": "1\n", "traceback": "ZeroDivisionError: x\n", "cpu_seconds": 0.1, "found": [1, {"a": None}]}
    outcome = Outcome(OutcomeStatus.ERROR, "ZeroDivisionError: x", "ZeroDivisionError", details)
    request = ToolRequest("python", {"code": "1/0\n", "limits": [1, 2.5, True]})
    code = text[1:-1]
    return Trajectory(
        prompt=Prompt(Problem("p/1", "What is \\frac{1}{2}?", "0.5"), (5, 6, 7)),
        group_id="3/p/1",
        sample_index=sample,
        token_ids_T=np.arange(length, dtype=np.int32),
        loss_mask_T=mask,
        rollout_logprobs_T=rollout_logprobs,
        policy_versions_T=np.where(mask, 3, -1).astype(np.int32),
        turns=(
            Turn(0, 2, text, StopReason.CALL, (Block(code, 1, 1 + len(code), 1), Block("", 0, 0, 0)), 0),
            Turn(3, length, "so", StopReason.LENGTH, (), 32),
        ),
        tool_calls=(
            ToolCall(request, outcome, "\nZeroDivisionError: x\n```\n", 2, 3, 0.25),
            ToolCall(None, Outcome(OutcomeStatus.ERROR, "NoCode: none", "NoCode"), "", 3, 3, 0.0),
        ),
        finish_reason=FinishReason.LENGTH,
        text=text,
        seconds=1.5,
        format="my_format",
    )


def records(step: int, *grades: Grade) -> list[TrajectoryRecord]:
    return [TrajectoryRecord(step, make(sample=sample), grade) for sample, grade in enumerate(grades)]


def same(left: TrajectoryRecord, right: TrajectoryRecord) -> bool:
    arrays = [field for field in Trajectory.__slots__ if field.endswith("_T")]
    for name in arrays:
        one, two = getattr(left.trajectory, name), getattr(right.trajectory, name)
        if one.dtype != two.dtype or one.tobytes() != two.tobytes():
            return False
    empty = {name: np.zeros(0) for name in arrays}
    stripped = [
        dataclasses.asdict(
            dataclasses.replace(
                record,
                trajectory=dataclasses.replace(record.trajectory, **empty),
                token_arrays={name: array.tobytes() for name, array in record.token_arrays.items()},
            )
        )
        for record in (left, right)
    ]
    for record in stripped:
        for name in arrays:
            del record["trajectory"][name]
    return bool(stripped[0] == stripped[1])


numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(
    text=st.text(),
    logprobs=hnp.arrays(np.float32, st.integers(0, 20), elements=st.floats(-(2.0**100), 0, width=32)),
    reward=numbers,
    parts=st.dictionaries(st.text(), numbers),
    turn_rewards=st.just(()) | st.tuples(numbers, numbers),
    advantage=st.none() | numbers,
)
def test_a_trajectory_reads_back_bit_for_bit(
    text: str,
    logprobs: object,
    reward: float,
    parts: dict[str, float],
    turn_rewards: tuple[float, ...],
    advantage: float | None,
) -> None:
    trajectory = make(text, logprobs)
    token_numbers = {"values": trajectory.rollout_logprobs_T / 3} if advantage is not None else {}
    grade = Grade(reward, True, text, "timeout", parts, turn_rewards)
    record = TrajectoryRecord(3, trajectory, grade, advantage, token_numbers)
    line = encode_row(encode_trajectory(record))
    assert line.count(b"\n") == 1
    assert same(decode_trajectory(json.loads(line)), record)
    assert same(decode_line(line), record)


def test_a_file_of_trajectories(tmp_path: Path) -> None:
    grades = [RIGHT, Grade(-1.0, False, None), Grade(-1.0, False, "2", "error")]
    written = [
        dataclasses.replace(record, advantage=advantage)
        for record, advantage in zip(records(12, *grades), [1.0, -0.5, -0.5], strict=True)
    ]
    path = write_trajectories(tmp_path, 12, written)
    assert path == trajectory_file(tmp_path, 12)
    assert sorted(os.listdir(path.parent)) == [path.name]
    read = list(read_trajectories(path))
    assert all(same(*pair) for pair in zip(read, written, strict=True))


def test_a_row_says_everything_to_a_reader_without_torl(tmp_path: Path) -> None:
    grade = Grade(1.0, True, "0.5", parts={"answer": 1.0}, turn_rewards=(0.25, 0.0))
    path = write_trajectories(tmp_path, 12, [TrajectoryRecord(12, make(), grade, 0.5)])
    row = json.loads(path.read_text(encoding="utf-8"))
    assert row["loss_mask"] == [[True, 2], [False, 1], [True, 1]]
    assert row["rollout_logprobs"] == [-0.1, -1e-7, 0.0, -12.345678]
    assert (row["question"], row["reference_answer"], row["answer"]) == ("What is \\frac{1}{2}?", "0.5", "0.5")
    assert (row["text"], row["sampled_text"]) == ("hé ```python\n", "hé ```python\n\nso")
    assert (row["reward"], row["reward_parts"], row["turn_rewards"]) == (1.0, {"answer": 1.0}, [0.25, 0.0])
    assert row["turns"][0] == {
        "start": 0,
        "stop": 2,
        "text": "hé ```python\n",
        "stop_reason": "call",
        "blocks": [[1, 12, 1], [0, 0, 0]],
        "cached_tokens": 0,
    }
    call, without_request = row["tool_calls"]
    assert (call["tool"], call["arguments"]["code"], call["status"]) == ("python", "1/0\n", "error")
    assert (call["text"], call["error"]) == ("ZeroDivisionError: x", "ZeroDivisionError")
    assert call["details"]["stdout"] == "1\n"
    assert (without_request["tool"], without_request["arguments"]) == (None, None)


def test_rewards_of_other_number_types_are_written_as_floats(tmp_path: Path) -> None:
    grade = Grade(True, 1, parts={"answer": np.float32(1.0)}, turn_rewards=(1, False))  # type: ignore[arg-type]
    path = write_trajectories(tmp_path, 1, [TrajectoryRecord(1, make(), grade)])
    read = next(read_trajectories(path)).grade
    assert (
        repr((read.reward, read.correct, read.parts, read.turn_rewards)) == "(1.0, True, {'answer': 1.0}, (1.0, 0.0))"
    )


def test_absent_parts_and_turn_rewards_are_left_out() -> None:
    row = encode_trajectory(TrajectoryRecord(0, make(), RIGHT))
    assert not {"reward_parts", "turn_rewards"} & set(row)


def test_an_evaluation_file_has_no_advantages(tmp_path: Path) -> None:
    path = write_trajectories(tmp_path, 0, records(0, RIGHT), evaluation_set="held_out")
    assert path.name == "evaluation_000000_held_out.jsonl"
    assert next(read_trajectories(path)).advantage is None
    with pytest.raises(RecordError, match="letters, digits"):
        trajectory_file(tmp_path, 0, "../../etc")


def test_a_failed_write_leaves_neither_the_file_nor_its_beginnings(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a record of step 2 in a file of step 1"):
        write_trajectories(tmp_path, 1, [*records(1, RIGHT), *records(2, RIGHT)])
    assert os.listdir(tmp_path / "trajectories") == []


def _with_outcome(outcome: Outcome) -> TrajectoryRecord:
    call = dataclasses.replace(make().tool_calls[0], outcome=outcome)
    return TrajectoryRecord(0, dataclasses.replace(make(), tool_calls=(call,)), Grade(0.0, False, None))


def test_long_outputs_keep_their_head() -> None:
    long = "x" * 10**6
    details = {"stdout": long, "pages": [{"title": long}], "number": float("nan")}
    row = encode_trajectory(_with_outcome(Outcome(OutcomeStatus.OK, long, long, details)))
    head = "x" * MAX_OUTPUT_CHARACTERS
    call = row["tool_calls"][0]
    assert (call["text"], call["error"]) == (head, head)
    assert call["text"] is call["details"]["stdout"]
    assert call["details"] == {"stdout": head, "pages": [{"title": head}], "number": None}
    decode_trajectory(json.loads(encode_row(row)))


def test_details_without_json_form_are_named() -> None:
    record = _with_outcome(Outcome(OutcomeStatus.OK, "", details={"where": Path("x")}))
    with pytest.raises(RecordError, match=r"PosixPath is not JSON serializable .*details"):
        encode_row(encode_trajectory(record))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"\\ud800"', "\ud800"),
        ("Infinity", float("inf")),
        ('{"a": [-Infinity]}', {"a": [float("-inf")]}),
        ("1e999", float("inf")),
    ],
)
def test_details_of_other_writers_are_read_as_python_reads_them(text: str, value: object) -> None:
    line = encode_row(encode_trajectory(records(1, RIGHT)[0])).replace(b'"cpu_seconds": 0.1', b'"x": ' + text.encode())
    for marked in (line, b"\xef\xbb\xbf" + line):
        assert decode_line(marked).trajectory.tool_calls[0].outcome.details["x"] == value


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda line: b"{broken\n" + line, "line 1: damaged"),
        (lambda line: line + line.replace(b'"turns"', b'"turnips"'), "line 2: not a trajectory: turns is missing"),
        (lambda line: line.replace(b'"token_ids": [0, ', b'"token_ids": ['), "differ in length"),
        (
            lambda line: line.replace(b'"advantage"', b'"turn_rewards": [1.0], "advantage"'),
            "turn rewards is not the number of turns",
        ),
        (
            lambda line: line.replace(b'"stop_reason": "call"', b'"stop_reason": "chance"'),
            "'chance' is not a valid StopReason",
        ),
        (
            lambda line: line.replace(b'"reward": 1.0', b'"reward": "1.0"'),
            "reward: expected float, got '1.0'",
        ),
        (
            lambda line: line.replace(b'"correct": true', b'"correct": 1'),
            "correct: expected bool, got 1",
        ),
        (lambda line: line.replace(b'"seconds": 1.5', b'"seconds": NaN'), "seconds: expected a finite number, got nan"),
        (
            lambda line: line.replace(b'"token_ids": [0,', b'"token_ids": ["0",'),
            r"token_ids\.0: expected int, got '0'",
        ),
        (lambda line: line.replace(b'"sample": 0', b'"sample": 0.5'), "sample: expected int, got 0.5"),
        (
            lambda line: line.replace(b'"advantage"', b'"reward_parts": {"a": 1, "b": null}, "advantage"'),
            r"reward_parts\.b: expected float, got None",
        ),
        (
            lambda line: line.replace(b'"token_numbers": {', b'"token_numbers": {"a": [], "b": [0.5, -Infinity]'),
            r"token_numbers\.b\.1: expected a finite number, got -inf",
        ),
        (
            lambda line: line.replace(b"}\n", b', "branches": [%s]}\n' % line.replace(b'"tool": null, ', b"").strip()),
            r"branches\.0\.tool_calls\.1\.tool is missing",
        ),
        (
            lambda line: line.replace(b'"token_ids": [0,', b'"token_ids": [2147483648,'),
            r"token_ids\.0: expected int <= 2147483647, got 2147483648",
        ),
        (
            lambda line: line.replace(b"[[true, 2]", b"[[true, 2, 3]"),
            r"loss_mask\.0: expected array of length 2, got \[",
        ),
        (lambda line: b"[]\n", "not an object"),
        (lambda line: line + b"\xff\xfe\x00\x01\n", "line 2: damaged: not UTF-8"),
    ],
)
def test_damaged_trajectories_are_named(tmp_path: Path, damage: object, words: str) -> None:
    path = write_trajectories(tmp_path, 1, records(1, RIGHT))
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(RecordError, match=words):
        list(read_trajectories(path))


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step_000012.jsonl", 12),
        ("step_1234567.jsonl", 1234567),
        ("evaluation_000003_held_out.jsonl", 3),
        ("step_12.jsonl", None),
        (".step_000012.jsonl.77", None),
        ("other.jsonl", None),
    ],
)
def test_steps_of_file_names(name: str, step: int | None) -> None:
    assert step_of_file(Path("trajectories") / name) == step
