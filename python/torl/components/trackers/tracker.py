"""The interface of trackers, the facts of a run that they attach, and the thread that feeds them."""

import importlib
import platform
import queue
import threading
import time
import traceback
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from torl.base.errors import ConfigError, TorlError
from torl.base.guard import Guarded, guarded, location
from torl.base.options import dotted_leaves, read_toml
from torl.base.version import __version__

_CONFIG_FILE: Final = "config.toml"
_LIBRARIES: Final = ("torch", "vllm", "deepspeed", "transformers", "math-verify")


@dataclass(frozen=True, slots=True)
class Example:
    """A trajectory as trackers show it.

    Attributes:
        problem: Id of the problem.
        question: Text of the problem.
        response: Text of the response, with the results of its calls.
        reference: Reference answer.
        correct: Whether the final answer is correct.
        reward: Total reward.
    """

    problem: str
    question: str
    response: str
    reference: str
    correct: bool
    reward: float


class Tracker(Guarded, ABC, kind="tracker"):
    """A destination of a run's metrics, such as an experiment tracker.

        class Prints(torl.Tracker):
            def __init__(self, run_directory: Path, resume_step: int | None, every: int = 1) -> None:
                self.every = every

            def write(self, step: int, metrics: Mapping[str, float], wall_time: float) -> None:
                if step % self.every == 0:
                    print(step, metrics.get("reward/mean"))

        [run.trackers.prints]
        name = "mine:Prints"
        every = 10

    torl constructs it with the run directory and the first step that a resumed run writes again (None for a new run);
    the other parameters are its options. An exception of the constructor stops the run before it starts. Later calls
    come from one thread, in order. Their exceptions do not stop the run, because its own files have everything: the
    first one is a warning, all are in `logs/trackers.log`.
    """

    @guarded()
    @abstractmethod
    def write(self, step: int, metrics: Mapping[str, float], wall_time: float) -> None:
        """Write the metrics of a step or an evaluation. docs/reference/metrics.md lists the names.

        Args:
            step: Training step.
            metrics: Values by name.
            wall_time: Seconds since the epoch.
        """

    @guarded()
    def write_examples(self, step: int, examples: Sequence[Example], evaluation_set: str | None) -> None:
        """Write example trajectories of a step or an evaluation. The default ignores them.

        Args:
            step: Training step.
            examples: Few trajectories: right and wrong ones, those that use tools first.
            evaluation_set: Name of the evaluation set. None for a training step.
        """

    @guarded()
    def close(self, failed: bool = False) -> None:
        """Write all pending metrics. Called at the end of the run.

        Args:
            failed: Whether an exception ended the run.
        """


def import_client(module: str, extra: str) -> Any:
    """Import the library of a tracker.

    Raises:
        ConfigError: The library is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # a broken installation
        raise ConfigError(f"the tracker {extra!r} needs its library: pip install 'torl[{extra}]'") from error


def run_settings(run_directory: Path) -> dict[str, Any]:
    """Return the settings of a run by their dotted names, and the versions of libraries after "versions."."""
    path = run_directory / _CONFIG_FILE
    tree = read_toml(path) if path.exists() else {}
    return {**dict(dotted_leaves(tree)), **{f"versions.{name}": version for name, version in _versions()}}


def examples_due(step: int, evaluation_set: str | None) -> bool:
    """Whether example trajectories are due: at each evaluation, and at every tenth training step."""
    return evaluation_set is not None or step % 10 == 0


def example_table(client: Any, step: int, examples: Sequence[Example], evaluation_set: str | None) -> dict[str, Any]:
    """Return the examples that are due as a `Table` of a tracker's library, by its name; an empty dict otherwise."""
    if not examples_due(step, evaluation_set):
        return {}
    rows = [asdict(each) for each in examples]
    table = client.Table(columns=list(rows[0]), data=[list(row.values()) for row in rows])
    return {f"examples/{evaluation_set or 'training'}": table}


def run_id(run_directory: Path, tracker: str) -> str:
    """Return the id of the run in a tracker, which a resumed run finds again in the file `logs/<tracker>.id`."""
    path = run_directory / "logs" / f"{tracker}.id"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(uuid.uuid4().hex[:16], encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()


def _versions() -> Iterator[tuple[str, str]]:
    yield "torl", __version__
    yield "python", platform.python_version()
    for name in _LIBRARIES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue


LOG_FILE: Final = Path("logs") / "trackers.log"
CLOSE_TIMEOUT_SECONDS: Final = 60.0
"""Grace period at the end of a run. A tracker that sends for longer is left."""


class TrackerFeed:
    """Passes calls to trackers in order, in a thread: a slow or failing one neither delays nor stops the run."""

    def __init__(self, trackers: Sequence[Tracker], run_directory: Path, warn: Callable[[str], object]) -> None:
        """Start the thread if there are trackers.

        Args:
            trackers: Trackers.
            run_directory: Directory of the run, for `LOG_FILE`.
            warn: Function that receives the first failure of each tracker. It must be thread-safe.
        """
        self._trackers, self._path, self._warn = trackers, run_directory / LOG_FILE, warn
        self._calls: queue.SimpleQueue[Callable[[Tracker], None] | None] = queue.SimpleQueue()
        self._failing: set[int] = set()
        self._thread = threading.Thread(target=self._run, name="trackers", daemon=True) if trackers else None
        if self._thread is not None:
            self._thread.start()

    def send(self, call: Callable[[Tracker], None]) -> None:
        """Pass a call to all trackers, and return at once."""
        if self._thread is not None:
            self._calls.put(call)

    def close(self, failed: bool) -> None:
        """Pass on all calls and close the trackers. May be called twice."""
        if self._thread is None:
            return
        self.send(lambda tracker: tracker.close(failed))
        self._calls.put(None)
        self._thread.join(CLOSE_TIMEOUT_SECONDS)
        if self._thread.is_alive():
            self._warn(
                f"a tracker has not finished after {CLOSE_TIMEOUT_SECONDS:.0f} s; the run's own files are complete"
            )
        self._thread = None

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            for index, tracker in enumerate(self._trackers):
                try:
                    call(tracker)
                except Exception as error:
                    self._report(index, tracker, error)

    def _report(self, index: int, tracker: Tracker, error: Exception) -> None:
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        text = str(error) if isinstance(error, TorlError) else f"{location(tracker)}: {type(error).__name__}: {error}"
        try:
            self._path.parent.mkdir(exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{now} {text}\n{''.join(traceback.format_exception(error))}\n")
        except OSError:
            pass  # the run itself reports a full disk or a removed directory
        if index not in self._failing:
            self._failing.add(index)
            self._warn(f"{text}\nthe run continues; further failures of this tracker are in {self._path}")
