"""Writing a run's records: written records are read back after failures of the process or the disk."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from builders import grade, trajectory
from torl.base.errors import ConfigError, RecordError
from torl.base.options import Choice, ChosenFrom
from torl.components.trackers import TRACKERS, Example, Tracker
from torl.components.trackers.backends import TensorBoard
from torl.components.trackers.tracker import LOG_FILE
from torl.run.config import TrainConfig
from torl.run.config.loading import load_config
from torl.run.records.reading import find_damage, read_metrics
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.writers import RunWriter, write_trajectories


def record(step: int) -> TrajectoryRecord:
    return TrajectoryRecord(step, trajectory("\\boxed{1}"), grade())


def test_metrics_read_back_with_time_and_without_infinities(tmp_path: Path) -> None:
    with RunWriter(tmp_path) as writer:
        writer.write_metrics(0, {"reward/mean": -0.5, "learner/loss": float("nan")})
        writer.write_metrics(1, {"reward/mean": 0.25})
        rows = read_metrics(tmp_path)  # while the file is open
    assert [row["step"] for row in rows] == [0, 1]
    assert [row["reward/mean"] for row in rows] == [-0.5, 0.25]
    assert rows[0]["learner/loss"] is None
    assert all(row["time"] > 1.7e9 for row in rows)


def test_resuming_removes_records_of_repeated_steps(tmp_path: Path) -> None:
    with RunWriter(tmp_path) as writer:
        for step in range(5):
            writer.write_metrics(step, {"reward/mean": float(step)})
            write_trajectories(tmp_path, step, [record(step)])
    write_trajectories(tmp_path, 4, [record(4)], evaluation_set="a_b")
    (tmp_path / "metrics.jsonl").open("ab").write(b'{"step": 5, "rew')
    (tmp_path / "summary.json").touch()
    with RunWriter(tmp_path, resume_step=3) as writer:
        assert not (tmp_path / "summary.json").exists()  # it describes a finished run
        writer.write_metrics(3, {"reward/mean": 33.0})
    assert [row["reward/mean"] for row in read_metrics(tmp_path)] == [0.0, 1.0, 2.0, 33.0]
    assert sorted(os.listdir(tmp_path / "trajectories")) == [f"step_{step:06d}.jsonl" for step in range(3)]
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (b"{broken\n", "line 2: damaged: "),
        (b'{"step": 1', "line 2: damaged: the line is cut"),
        (b"\xff\n", "not UTF-8"),
    ],
)
def test_damaged_record_before_a_checkpoint_is_found(tmp_path: Path, damage: bytes, message: str) -> None:
    (tmp_path / "trajectories").mkdir()
    paths = [write_trajectories(tmp_path, step, [record(step)]) for step in range(3)]
    assert find_damage(tmp_path, 3) is None
    with paths[1].open("ab") as file:
        file.write(damage)
    assert message in str(find_damage(tmp_path, 2))
    assert str(paths[1]) in str(find_damage(tmp_path, 3))
    assert find_damage(tmp_path, 1) is None  # a resumed run writes it again
    assert find_damage(tmp_path, 3, max_bytes=paths[2].stat().st_size) is None  # only the latest files are read


def test_a_new_run_does_not_append_to_an_old_one(tmp_path: Path) -> None:
    with RunWriter(tmp_path) as writer:
        writer.write_metrics(0, {})
    with pytest.raises(RecordError, match="another run"):
        RunWriter(tmp_path)


def test_a_damaged_row_is_named_and_nothing_is_truncated(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 0}\n{"step" 1}\n{"step": 2}\n')
    with pytest.raises(RecordError, match="line 2: damaged"):
        RunWriter(tmp_path, resume_step=2)
    assert path.read_bytes().count(b"\n") == 3


def test_binary_row_is_named(tmp_path: Path) -> None:
    # json takes these bytes for UTF-16, and complains of that.
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 0}\n\xfe\xff\xd8\x00\x00\n')
    with pytest.raises(RecordError, match=r"metrics\.jsonl, line 2: damaged: not UTF-8"):
        read_metrics(tmp_path)


@pytest.mark.parametrize(
    "write",
    [
        lambda writer: writer.write_metrics(1, {"reward/mean": 0.5}),
        lambda writer: writer.write_trajectories(1, [record(1)]),
    ],
)
def test_removed_directory_fails_the_next_write(tmp_path: Path, write: Callable[[RunWriter], object]) -> None:
    directory = tmp_path / "run"
    with RunWriter(directory) as writer:
        writer.write_metrics(0, {"reward/mean": 0.5})
        writer.write_trajectories(0, [record(0)])
        shutil.rmtree(directory)
        with pytest.raises(RecordError, match=r"metrics\.jsonl: cannot be written: No such file or directory"):
            write(writer)
    assert not directory.exists()


def test_replaced_metrics_file_fails_the_next_write(tmp_path: Path) -> None:
    with RunWriter(tmp_path) as writer:
        writer.write_metrics(0, {"reward/mean": 0.5})
        (tmp_path / "metrics.jsonl").rename(tmp_path / "old.jsonl")
        (tmp_path / "metrics.jsonl").write_bytes((tmp_path / "old.jsonl").read_bytes())
        with pytest.raises(RecordError, match="was replaced while the run was writing it"):
            writer.write_metrics(1, {"reward/mean": 0.5})


def test_missing_directory_has_no_trajectories(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be written: No such file or directory"):
        write_trajectories(tmp_path / "gone", 0, [record(0)])
    assert not (tmp_path / "gone").exists()


def test_rows_survive_a_sigkill(tmp_path: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
from torl.base.options import Choice
from torl.run.records.writers import RunWriter
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
from torl.run.config import TrainConfig
from torl.run.config.loading import load_config
from torl.base.errors import ConfigError, RecordError, TorlError
from torl.components.trackers import Tracker
from torl.base.options import Choice
from torl.run.records.writers import RunWriter
writer = RunWriter(Path({str(tmp_path)!r}))
resource.setrlimit(resource.RLIMIT_FSIZE, (40000, 40000))
try:
    for step in range(100):
        writer.write_metrics(step, {{f"reward/part/{{number}}": step / 2 for number in range(60)}})  # the longest file
except RecordError as error:
    print(error)
"""
    output = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert "metrics.jsonl: cannot be written: File too large" in output
    content = (tmp_path / "metrics.jsonl").read_bytes()
    assert content.endswith(b"\n")
    assert len(read_metrics(tmp_path)) == content.count(b"\n") > 10


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_full_disk_error_has_a_clear_message(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(RecordError, match="No space left on device"), RunWriter(tmp_path) as w:
        w.write_metrics(0, {"reward/mean": 1.0})


def test_tensorboard_reads_the_events(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with RunWriter(tmp_path, trackers=[TensorBoard(tmp_path, None)]) as writer:
        for step in range(4):
            writer.write_metrics(step, {"reward/mean": step / 2})
    with RunWriter(tmp_path, resume_step=2, trackers=[TensorBoard(tmp_path, 2)]) as writer:
        writer.write_metrics(2, {"reward/mean": 7.0})
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["reward/mean"]
    assert [(event.step, event.value) for event in events.Scalars("reward/mean")] == [(0, 0.0), (1, 0.5), (2, 7.0)]


class Noted(Tracker):
    """A tracker that keeps the metrics, up to a limit."""

    def __init__(self, limit: int) -> None:
        self.limit, self.rows, self.failed = limit, list[tuple[int, float]](), None
        self.examples: list[tuple[int, Sequence[Example], str | None]] = []

    def write(self, step: int, metrics: Mapping[str, float], wall_time: float) -> None:
        if len(self.rows) == self.limit:
            raise ValueError("full")
        self.rows.append((step, metrics["a"]))

    def write_examples(self, step: int, examples: Sequence[Example], evaluation_set: str | None) -> None:
        self.examples.append((step, examples, evaluation_set))

    def close(self, failed: bool = False) -> None:
        self.failed = failed


def test_failing_tracker_warns_once_and_stops_no_run(tmp_path: Path) -> None:
    first, second, warnings = Noted(9), Noted(1), list[str]()
    with RunWriter(tmp_path, trackers=[first, second], warn=warnings.append) as writer:
        for step in range(4):
            writer.write_metrics(step, {"a": float(step)})
    assert (first.rows, second.rows) == ([(step, float(step)) for step in range(4)], [(0, 0.0)])
    assert (first.failed, second.failed) == (False, False)
    assert len(read_metrics(tmp_path)) == 4
    [warning] = warnings
    assert re.match(r"the tracker \(.*:Noted\) failed in write\(1, \.\.\.\)\nValueError: full", warning)
    log = (tmp_path / LOG_FILE).read_text()
    assert [f"failed in write({step}, ...)\nValueError: full\nat " in log for step in (1, 2, 3)] == [True] * 3


def test_slow_tracker_does_not_delay_the_run(tmp_path: Path) -> None:
    released, noted = threading.Event(), Noted(9)

    class Slow(Noted):
        def write(self, step: int, metrics: Mapping[str, float], wall_time: float) -> None:
            released.wait()

    with RunWriter(tmp_path, trackers=[Slow(9), noted]) as writer:
        writer.write_metrics(0, {"a": 1.0})
        assert len(read_metrics(tmp_path)) == 1
        assert not noted.rows
        released.set()
    assert noted.rows == [(0, 1.0)]


def test_trackers_see_the_failure_of_a_run(tmp_path: Path) -> None:
    noted = Noted(9)
    with pytest.raises(KeyError), RunWriter(tmp_path, trackers=[noted]):
        raise KeyError
    assert noted.failed


def test_trackers_receive_right_and_wrong_examples_with_calls_first(tmp_path: Path) -> None:
    noted = Noted(9)
    right = [TrajectoryRecord(0, trajectory(f"{number}"), grade()) for number in range(5)]
    wrong = [TrajectoryRecord(0, trajectory("wrong"), grade(False))]
    with RunWriter(tmp_path, trackers=[noted]) as writer:
        writer.write_trajectories(0, [*right, *wrong], evaluation_set="heldout")
    [(step, examples, evaluation_set)] = noted.examples
    assert (step, evaluation_set) == (0, "heldout")
    assert [example.response for example in examples] == ["0", "1", "2", "wrong"]
    assert [example.correct for example in examples] == [True, True, True, False]


@pytest.mark.parametrize("name", ["wandb", "trackio", "mlflow"])
def test_missing_library_of_a_tracker_is_a_clear_error(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    target = ChosenFrom(TRACKERS, "tracker", positional_count=2).find(name)
    with pytest.raises(ConfigError, match=rf"the tracker '{name}' needs its library: pip install 'torl\[{name}\]'"):
        target(tmp_path, None)


def test_a_configuration_chooses_trackers(tmp_path: Path) -> None:
    def trackers(text: str) -> dict[str, Choice[Tracker]]:
        path = tmp_path / "run.toml"
        path.write_text(f"extends = 'demo'\n{text}")
        return load_config(TrainConfig, path).run.trackers

    assert {name: choice.target for name, choice in trackers("").items()} == {"tensorboard": TensorBoard}
    both = trackers(f"[run.trackers.noted]\nname = '{__name__}:Limited'\nlimit = 3\n")
    made = both["noted"].make(tmp_path, None)
    assert isinstance(made, Limited)
    assert (list(both), made.limit) == (["noted"], 3)  # a table replaces the default
    assert trackers("[run.trackers]\ntensorboard = false\n") == {}
    with pytest.raises(ConfigError, match=r"run\.trackers\.x: .*Tracker"):
        trackers("[run.trackers.x]\nname = 'torl.recipes.torl:ToRLFormat'\n")


class Limited(Noted):
    """A tracker as a configuration constructs it."""

    def __init__(self, run_directory: Path, resume_step: int | None, limit: int = 1) -> None:
        super().__init__(limit)
