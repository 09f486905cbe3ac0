"""A run's own records: their layout on disk, and reading them back.

    metrics.jsonl                                one row for each step and evaluation: {"step", "time", name: value}
    trajectories/step_000012.jsonl               one row for each trajectory of a training step
    trajectories/evaluation_000000_<set>.jsonl   the same for an evaluation

`encode_trajectory` and `decode_trajectory` are inverse to each other, but for outputs of code beyond
`LONGEST_OUTPUT` characters, of which the head is kept: what the model saw of them is in the observation.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from torl.errors import RecordError
from torl.types import (
    FinishReason,
    Float32Array,
    Grade,
    Outcome,
    OutcomeStatus,
    Problem,
    Prompt,
    ToolCall,
    Trajectory,
    Turn,
)

CONFIG_FILE = "config.toml"
METRICS_FILE = "metrics.jsonl"
REPORT_FILE = "report.html"
TRAJECTORY_DIRECTORY = "trajectories"
LONGEST_OUTPUT = 16384

_STEP_OF_FILE = re.compile(r"(?:step_(\d{6,})|evaluation_(\d{6,})_(.+))\.jsonl")


@dataclass(frozen=True, slots=True)
class TrajectoryRecord:
    """One row of a trajectory file.

    `advantage` is the mean over the sampled tokens; None where none was computed: in evaluations, and for a trajectory
    that was left out of the batch. `token_numbers` are arrays over the response that token-wise advantages were made
    of, and these advantages; most runs have none.
    """

    step: int
    trajectory: Trajectory
    grade: Grade
    advantage: float | None = None
    token_numbers: Mapping[str, Float32Array] = field(default_factory=dict)


def trajectory_file(run_directory: Path, step: int, evaluation_set: str | None = None) -> Path:
    """Where the trajectories of a step, or of an evaluation after so many steps, lie.

    Raises:
        RecordError: the name of the evaluation set cannot be part of a file name.
    """
    if evaluation_set is None:
        return run_directory / TRAJECTORY_DIRECTORY / f"step_{step:06d}.jsonl"
    if not re.fullmatch(r"[\w.+-]+", evaluation_set):
        raise RecordError(f"evaluation set {evaluation_set!r}: use letters, digits and . _ + - in its name")
    return run_directory / TRAJECTORY_DIRECTORY / f"evaluation_{step:06d}_{evaluation_set}.jsonl"


def step_of_file(path: Path) -> int | None:
    """The step in the name of a trajectory file; None for other files."""
    match = _STEP_OF_FILE.fullmatch(path.name)
    return int(match.group(1) or match.group(2)) if match else None


def training_files(run_directory: Path) -> list[Path]:
    """The trajectory files of training steps, in the order of the steps."""
    return _by_step(path for path in _trajectory_files(run_directory) if path.name.startswith("step_"))


def evaluation_files(run_directory: Path) -> dict[str, list[Path]]:
    """The trajectory files of each evaluation set, in the order of the steps."""
    sets: dict[str, list[Path]] = {}
    for path in _trajectory_files(run_directory):
        match = _STEP_OF_FILE.fullmatch(path.name)
        if match and match.group(3):
            sets.setdefault(match.group(3), []).append(path)
    return {name: _by_step(paths) for name, paths in sorted(sets.items())}


def _trajectory_files(run_directory: Path) -> list[Path]:
    paths = (run_directory / TRAJECTORY_DIRECTORY).glob("*.jsonl")
    return sorted(path for path in paths if step_of_file(path) is not None)


def _by_step(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: step_of_file(path) or 0)


def read_metrics(run_directory: Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics. A last line that a killed process left unfinished is not a row.

    Raises:
        RecordError: the file is missing, or a finished line of it is damaged.
    """
    return list(_read_rows(run_directory / METRICS_FILE))


def read_trajectories(path: Path) -> Iterator[TrajectoryRecord]:
    """The rows of one trajectory file.

    Raises:
        RecordError: the file is missing or a line of it is damaged; names the line.
    """
    for number, row in enumerate(_read_rows(path), start=1):
        try:
            yield decode_trajectory(row)
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"{path}, line {number}: not a trajectory: {type(error).__name__}: {error}") from error


def _read_rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return  # its writer was killed in the middle
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise RecordError(f"{path}, line {number}: damaged: {error}") from error
                if not isinstance(row, dict):
                    raise RecordError(f"{path}, line {number}: damaged: not an object")
                yield row
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error


def encode_row(row: Mapping[str, Any]) -> bytes:
    """One line of JSON. A number that is not finite becomes null: JSON has no word for it."""
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
    }
    return json.dumps(finite, ensure_ascii=False, allow_nan=False).encode("utf-8", errors="backslashreplace") + b"\n"


def encode_trajectory(record: TrajectoryRecord) -> dict[str, Any]:
    """A trajectory as a row of plain JSON, to be read without torl."""
    trajectory, grade = record.trajectory, record.grade
    problem = trajectory.prompt.problem
    return {
        "step": record.step,
        "group": trajectory.group,
        "sample": trajectory.sample,
        "problem": problem.id,
        "question": problem.question,
        "reference_answer": problem.answer,
        "answer": grade.answer,
        "correct": grade.correct,
        "grader_failure": grade.failure,
        "reward": grade.reward,
        "advantage": record.advantage,
        "text": trajectory.text,
        "sampled_text": trajectory.sampled_text,
        "finish_reason": trajectory.finish_reason.value,
        "format": trajectory.format,
        "tool_calls": [_encode_call(call) for call in trajectory.tool_calls],
        "turns": [
            {"start": turn.start, "stop": turn.stop, "cached_tokens": turn.cached_tokens} for turn in trajectory.turns
        ],
        "seconds": trajectory.seconds,
        "prompt_token_ids": list(trajectory.prompt.token_ids),
        "token_ids": trajectory.token_ids_T.tolist(),
        # Lengths of runs of equal values, and the value of each run: true on sampled tokens.
        "loss_mask": [[bool(value), length] for value, length in _runs(trajectory.loss_mask_T)],
        "policy_versions": [[int(value), length] for value, length in _runs(trajectory.policy_versions_T)],
        "rollout_logprobs": _decimals(trajectory.rollout_logprobs_T),
        "token_numbers": {name: _decimals(array) for name, array in record.token_numbers.items()},
    }


def decode_trajectory(row: Mapping[str, Any]) -> TrajectoryRecord:
    """The inverse of `encode_trajectory`. A problem's metadata is not in the row.

    Raises:
        KeyError, TypeError, ValueError: the row is not a whole trajectory.
    """
    trajectory = Trajectory(
        prompt=Prompt(
            Problem(row["problem"], row["question"], row["reference_answer"]), tuple(row["prompt_token_ids"])
        ),
        group=row["group"],
        sample=row["sample"],
        token_ids_T=np.array(row["token_ids"], np.int32),
        loss_mask_T=_unroll(row["loss_mask"], np.bool_),
        rollout_logprobs_T=np.array(row["rollout_logprobs"], np.float32),
        policy_versions_T=_unroll(row["policy_versions"], np.int32),
        turns=tuple(Turn(**turn) for turn in row["turns"]),
        tool_calls=tuple(_decode_call(call) for call in row["tool_calls"]),
        finish_reason=FinishReason(row["finish_reason"]),
        text=row["text"],
        sampled_text=row["sampled_text"],
        seconds=row["seconds"],
        format=row["format"],
    )
    numbers = {name: np.array(values, np.float32) for name, values in row["token_numbers"].items()}
    arrays = (
        trajectory.loss_mask_T,
        trajectory.rollout_logprobs_T,
        trajectory.policy_versions_T,
        *numbers.values(),
    )
    if any(len(array) != len(trajectory) for array in arrays):
        raise ValueError("its arrays differ in length")
    grade = Grade(row["reward"], row["correct"], row["answer"], row["grader_failure"])
    return TrajectoryRecord(row["step"], trajectory, grade, row["advantage"], numbers)


def _encode_call(call: ToolCall) -> dict[str, Any]:
    outcome = call.outcome
    return {
        "code": call.code,
        "status": outcome.status.value,
        "stdout": outcome.stdout[:LONGEST_OUTPUT],
        "stderr": outcome.stderr[:LONGEST_OUTPUT],
        "exception_type": outcome.exception_type,
        "exception_line": outcome.exception_line and outcome.exception_line[:LONGEST_OUTPUT],
        "traceback": outcome.traceback and outcome.traceback[:LONGEST_OUTPUT],
        "cpu_seconds": outcome.cpu_seconds,
        "wall_seconds": outcome.wall_seconds,
        "peak_memory_bytes": outcome.peak_memory_bytes,
        "observation": call.observation,
        "start": call.start,
        "stop": call.stop,
        "wait_seconds": call.wait_seconds,
    }


def _decode_call(row: Mapping[str, Any]) -> ToolCall:
    outcome = Outcome(
        status=OutcomeStatus(row["status"]),
        stdout=row["stdout"],
        stderr=row["stderr"],
        exception_type=row["exception_type"],
        exception_line=row["exception_line"],
        traceback=row["traceback"],
        cpu_seconds=row["cpu_seconds"],
        wall_seconds=row["wall_seconds"],
        peak_memory_bytes=row["peak_memory_bytes"],
    )
    return ToolCall(row["code"], outcome, row["observation"], row["start"], row["stop"], row["wait_seconds"])


def _decimals(values: Float32Array) -> list[float]:
    """The shortest decimals that give the same float32 again."""
    return [float(text) for text in values.astype(np.float32).astype(str)]


def _runs(values: npt.NDArray[Any]) -> Iterator[tuple[Any, int]]:
    for value, run in groupby(values.tolist()):
        yield value, sum(1 for _ in run)


def _unroll(runs: list[list[Any]], dtype: type[np.generic]) -> npt.NDArray[Any]:
    values, lengths = [value for value, _ in runs], [length for _, length in runs]
    return np.repeat(np.array(values, dtype), lengths)
