"""Records of a run: what is written is read back, whatever happens to the process or the disk."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from torl.errors import RecordError
from torl.metrics.records import (
    LONGEST_OUTPUT,
    TrajectoryRecord,
    decode_trajectory,
    encode_row,
    encode_trajectory,
    read_metrics,
    read_trajectories,
    step_of_file,
    trajectory_file,
)
from torl.metrics.writers import RunWriter, truncate_records, write_trajectories
from torl.types import FinishReason, Grade, Outcome, OutcomeStatus, Problem, Prompt, ToolCall, Trajectory, Turn


def make(text: str = "hé ```python\n", logprobs: object = None, sample: int = 0) -> Trajectory:
    rollout_logprobs = np.array([-0.1, -1e-7, 0.0, -12.345678] if logprobs is None else logprobs, np.float32)
    length = len(rollout_logprobs)
    mask = np.arange(length) != 2
    outcome = Outcome(OutcomeStatus.ERROR, "1\n", "warn", "ZeroDivisionError", "ZeroDivisionError: x", "", 0.1, 0.2, 9)
    return Trajectory(
        prompt=Prompt(Problem("p/1", "What is \\frac{1}{2}?", "0.5"), (5, 6, 7)),
        group="3/p/1",
        sample=sample,
        token_ids_T=np.arange(length, dtype=np.int32),
        loss_mask_T=mask,
        rollout_logprobs_T=rollout_logprobs,
        policy_versions_T=np.where(mask, 3, -1).astype(np.int32),
        turns=(Turn(0, 2, 0), Turn(3, length, 32)),
        tool_calls=(ToolCall("1/0\n", outcome, "\nZeroDivisionError: x\n```\n", 2, 3, 0.25),),
        finish_reason=FinishReason.LENGTH,
        text=text,
        sampled_text=text,
        seconds=1.5,
    )


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
                token_numbers={name: array.tobytes() for name, array in record.token_numbers.items()},
            )
        )
        for record in (left, right)
    ]
    for record in stripped:
        for name in arrays:
            del record["trajectory"][name]
    return bool(stripped[0] == stripped[1])


@given(
    text=st.text(),
    logprobs=hnp.arrays(np.float32, st.integers(0, 20), elements=st.floats(-(2.0**100), 0, width=32)),
    reward=st.floats(allow_nan=False, allow_infinity=False),
    advantage=st.none() | st.floats(allow_nan=False, allow_infinity=False),
)
def test_a_trajectory_reads_back_bit_for_bit(
    text: str, logprobs: object, reward: float, advantage: float | None
) -> None:
    trajectory = make(text, logprobs)
    numbers = {"values": trajectory.rollout_logprobs_T / 3} if advantage is not None else {}
    record = TrajectoryRecord(3, trajectory, Grade(reward, True, text, "timeout"), advantage, numbers)
    line = encode_row(encode_trajectory(record))
    assert line.count(b"\n") == 1
    assert same(decode_trajectory(json.loads(line)), record)


def test_a_file_of_trajectories(tmp_path: Path) -> None:
    trajectories = [make(sample=sample) for sample in range(3)]
    grades = [Grade(1.0, True, "0.5"), Grade(-1.0, False, None), Grade(-1.0, False, "2", "error")]
    path = write_trajectories(tmp_path, 12, trajectories, grades, np.array([1.0, -0.5, -0.5], np.float32))  # type: ignore[arg-type]
    assert path == tmp_path / "trajectories" / "step_000012.jsonl"
    assert sorted(os.listdir(path.parent)) == [path.name]
    records = list(read_trajectories(path))
    expected = zip(trajectories, grades, [1.0, -0.5, -0.5], strict=True)
    assert all(same(r, TrajectoryRecord(12, t, g, a)) for r, (t, g, a) in zip(records, expected, strict=True))
    row = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    assert row["loss_mask"] == [[True, 2], [False, 1], [True, 1]]
    assert row["rollout_logprobs"] == [-0.1, -1e-7, 0.0, -12.345678]
    assert (row["question"], row["reference_answer"], row["answer"]) == ("What is \\frac{1}{2}?", "0.5", "0.5")


def test_an_evaluation_file_has_no_advantages(tmp_path: Path) -> None:
    path = write_trajectories(tmp_path, 0, [make()], [Grade(1.0, True, "0.5")], evaluation_set="held_out")
    assert path.name == "evaluation_000000_held_out.jsonl"
    assert next(read_trajectories(path)).advantage is None
    with pytest.raises(RecordError, match="letters, digits"):
        trajectory_file(tmp_path, 0, "../../etc")


def test_a_failed_write_leaves_neither_the_file_nor_its_beginnings(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="zip"):
        write_trajectories(tmp_path, 1, [make(), make()], [Grade(1.0, True, "0.5")])
    assert os.listdir(tmp_path / "trajectories") == []


def test_long_outputs_keep_their_head() -> None:
    call = dataclasses.replace(make().tool_calls[0].outcome, stdout="x" * 10**6)
    trajectory = dataclasses.replace(make(), tool_calls=(dataclasses.replace(make().tool_calls[0], outcome=call),))
    row = encode_trajectory(TrajectoryRecord(0, trajectory, Grade(0.0, False, None)))
    assert row["tool_calls"][0]["stdout"] == "x" * LONGEST_OUTPUT


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda line: b"{broken\n" + line, "line 1: damaged"),
        (lambda line: line + line.replace(b'"turns"', b'"turnips"'), "line 2: not a trajectory: KeyError: 'turns'"),
        (lambda line: line.replace(b'"token_ids": [0, ', b'"token_ids": ['), "differ in length"),
        (lambda line: b"[]\n", "not an object"),
    ],
)
def test_damaged_trajectories_are_named(tmp_path: Path, damage: object, words: str) -> None:
    path = write_trajectories(tmp_path, 1, [make()], [Grade(1.0, True, "0.5")])
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(RecordError, match=words):
        list(read_trajectories(path))


def test_metrics_read_back_with_time_and_without_infinities(tmp_path: Path) -> None:
    with RunWriter(tmp_path) as writer:
        writer.write_metrics(0, {"reward/mean": -0.5, "learner/loss": float("nan")})
        writer.write_metrics(1, {"reward/mean": 0.25})
        rows = read_metrics(tmp_path)  # while the file is open
    assert [row["step"] for row in rows] == [0, 1]
    assert [row["reward/mean"] for row in rows] == [-0.5, 0.25]
    assert rows[0]["learner/loss"] is None
    assert all(row["time"] > 1.7e9 for row in rows)


def test_resuming_removes_what_will_be_written_again(tmp_path: Path) -> None:
    with RunWriter(tmp_path, tensorboard=False) as writer:
        for step in range(5):
            writer.write_metrics(step, {"reward/mean": float(step)})
            write_trajectories(tmp_path, step, [make()], [Grade(1.0, True, "0.5")])
    write_trajectories(tmp_path, 4, [make()], [Grade(1.0, True, "0.5")], evaluation_set="a_b")
    (tmp_path / "metrics.jsonl").open("ab").write(b'{"step": 5, "rew')
    truncate_records(tmp_path, 3)
    with RunWriter(tmp_path, resume_step=3, tensorboard=False) as writer:
        writer.write_metrics(3, {"reward/mean": 33.0})
    assert [row["reward/mean"] for row in read_metrics(tmp_path)] == [0.0, 1.0, 2.0, 33.0]
    assert sorted(os.listdir(tmp_path / "trajectories")) == [f"step_{step:06d}.jsonl" for step in range(3)]
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_a_new_run_does_not_append_to_an_old_one(tmp_path: Path) -> None:
    with RunWriter(tmp_path, tensorboard=False) as writer:
        writer.write_metrics(0, {})
    with pytest.raises(RecordError, match="another run"):
        RunWriter(tmp_path, tensorboard=False)


def test_a_damaged_row_is_named_and_nothing_is_truncated(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 0}\n{"step" 1}\n{"step": 2}\n')
    with pytest.raises(RecordError, match="line 2: damaged"):
        RunWriter(tmp_path, resume_step=2)
    assert path.read_bytes().count(b"\n") == 3


def test_rows_survive_a_sigkill(tmp_path: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
from torl.metrics.writers import RunWriter
writer = RunWriter(Path({str(tmp_path)!r}))
for step in range(100):
    writer.write_metrics(step, {{"reward/mean": step / 2}})
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == -signal.SIGKILL
    assert [row["reward/mean"] for row in read_metrics(tmp_path)] == [step / 2 for step in range(100)]


def test_a_full_disk_is_a_clear_error_and_loses_no_row(tmp_path: Path) -> None:
    # A limit on the size of files fails a write in the middle, as a full disk does (EFBIG instead of ENOSPC).
    program = f"""
import resource
from pathlib import Path
from torl.errors import RecordError
from torl.metrics.writers import RunWriter
writer = RunWriter(Path({str(tmp_path)!r}), tensorboard=False)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    for step in range(100):
        writer.write_metrics(step, {{"reward/mean": step / 2}})
except RecordError as error:
    print(error)
"""
    shown = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert "metrics.jsonl: cannot be written: File too large" in shown
    content = (tmp_path / "metrics.jsonl").read_bytes()
    assert content.endswith(b"\n")
    assert len(read_metrics(tmp_path)) == content.count(b"\n") > 10


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_no_space_left_is_said_in_these_words(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(RecordError, match="No space left on device"), RunWriter(tmp_path, tensorboard=False) as w:
        w.write_metrics(0, {"reward/mean": 1.0})


def test_tensorboard_reads_the_events(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with RunWriter(tmp_path) as writer:
        for step in range(4):
            writer.write_metrics(step, {"reward/mean": step / 2})
    with RunWriter(tmp_path, resume_step=2) as writer:
        writer.write_metrics(2, {"reward/mean": 7.0})
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["reward/mean"]
    assert [(event.step, event.value) for event in events.Scalars("reward/mean")] == [(0, 0.0), (1, 0.5), (2, 7.0)]


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
