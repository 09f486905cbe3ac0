"""The console output of a run: one line per step, and progress of long waits.

On a terminal, curves of the steps, rates, a trajectory and bars of waits stay below the lines; in a log file waits are
plain lines.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Final

import rich.console
import rich.progress
from rich.markup import escape

from torl.base.types import ScoredGroup
from torl.run.display.live_screen import LiveScreen
from torl.run.records import metric_names as names

SHOW_AFTER_SECONDS: Final = 2.0
REPEAT_SECONDS: Final = 30.0
_HEADER_EVERY: Final = 25

_COLUMNS: Final = (
    *(names.ACCURACY, names.CODE_RATIO, names.PASS_RATIO, names.REWARD_MEAN),
    *(names.ENTROPY, names.RESPONSE_TOKENS, names.TIME_STEP),
)
SUPERVISED_COLUMNS: Final = (
    *(names.LOSS, names.ENTROPY, names.GRADIENT_NORM, names.LEARNING_RATE),
    *(names.LEARNED_TOKENS, names.TIME_STEP),
)
_EVALUATED: Final = (names.ACCURACY, names.GREEDY_ACCURACY, names.CODE_RATIO, names.PASS_RATIO)


class ProgressLine:
    """The progress of one wait. Thread-safe."""

    def __init__(self, console: "Console", description: str, total: float | None) -> None:
        self.description = description
        self.total = total
        self.completed = 0.0
        self.started = time.monotonic()
        self.is_complete = False
        self._console = console

    def advance(self, count: float = 1) -> None:
        """Add `count` to the completed amount."""
        self.completed += count
        self._console._refresh(self)

    def update(self, completed: float | None = None, total: float | None = None) -> None:
        """Set the completed amount and the total."""
        self.completed = self.completed if completed is None else completed
        self.total = self.total if total is None else total
        self._console._refresh(self)

    def __str__(self) -> str:
        done = f" {self.done}," if self.done else ""
        return f"{self.description}:{done} {time.monotonic() - self.started:.0f} s"

    @property
    def done(self) -> str:
        """The completed amount: "34/128", a percentage if the total is 1, empty if it is unknown."""
        if self.total is None:
            return ""
        return f"{self.completed:.0%}" if self.total <= 1 else f"{self.completed:.0f}/{self.total:.0f}"


class _Lines(rich.console.Console):
    def on_broken_pipe(self) -> None:
        """Raise the error again, so that the run ends as every command does. Rich would end it with status 1."""
        raise


class Console:
    """Lines, a step table and waits on one output. Close it, or use it as a context manager."""

    def __init__(self, file: IO[str] | None = None) -> None:
        """Write to `file`, by default standard output. A terminal gets live bars."""
        self._rich = _Lines(file=file, highlight=False, soft_wrap=True)
        self._lock = threading.RLock()
        self._progress: LiveScreen | None = None
        self._bars: dict[ProgressLine, rich.progress.TaskID] = {}
        self._rows = 0

    @property
    def is_terminal(self) -> bool:
        """Whether waits appear as live bars."""
        return self._rich.is_terminal

    def line(self, text: str = "") -> None:
        """Print one line without interpreting markup."""
        with self._lock:
            self._rich.print(escape(text))

    def warning(self, text: str) -> None:
        """Print a warning."""
        with self._lock:
            self._rich.print(f"[yellow]warning:[/yellow] {escape(text)}")

    def step(
        self,
        step: int,
        steps: int,
        metrics: Mapping[str, float],
        columns: Sequence[names.Metric] = _COLUMNS,
        groups: Sequence[ScoredGroup] = (),
    ) -> None:
        """Print the line of a training step, and the header of the table from time to time; update the live screen.

        Args:
            step: Number of finished steps.
            steps: Number of steps of the run.
            metrics: Metrics of the step.
            columns: Metrics in the columns of the table.
            groups: Groups that were played, one of whose trajectories the live screen shows.
        """
        width = max(len("step"), 2 * len(str(steps)) + 1)
        with self._lock:
            if self._rows % _HEADER_EVERY == 0:
                header = "  ".join(f"{metric.short:>8}" for metric in columns)
                self._rich.print(f"[bold]{'step':>{width}}  {header}[/bold]")
            self._rows += 1
            cells = "  ".join(f"{metric.show(metrics.get(metric)):>8}" for metric in columns)
            self._rich.print(f"{f'{step}/{steps}':>{width}}  {cells}")
            if self.is_terminal:
                self._open_screen()
                assert self._progress is not None
                self._progress.add_step(step, steps, metrics, columns, groups)

    def evaluation(self, step: int | None, set_name: str, metrics: Mapping[str, float]) -> None:
        """Print the line of an evaluation. `step` is None outside a run; `metrics` have their plain names."""
        cells = ", ".join(f"{each.short} {each.show(metrics[each])}" for each in _EVALUATED if each in metrics)
        if failed := metrics.get(names.FAILED_EPISODES):
            cells += f"; {failed:.0f} failed episodes dropped"
        with self._lock:
            when = "" if step is None else f" at step {step}"
            self._rich.print(f"[cyan]{escape(f'evaluation of {set_name}{when}: {cells}')}[/cyan]")

    @contextmanager
    def progress(self, description: str, total: float | None = None) -> Iterator[ProgressLine]:
        """Show the progress of a wait that lasts longer than two seconds.

        Args:
            description: Description of the wait, such as "compiling the sandbox guest".
            total: Total amount, 1 for a fraction; update it by `advance` or `update`. None if unknown.
        """
        wait = ProgressLine(self, description, total)
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(wait, ended), name="console-wait", daemon=True)
        watcher.start()
        try:
            yield wait
            wait.is_complete = True
        finally:
            ended.set()
            watcher.join()
            self._hide(wait)

    def close(self) -> None:
        """Stop the live display and restore the terminal."""
        with self._lock:
            self._bars.clear()
            if self._progress is not None:
                self._progress.stop()
                self._progress = None

    def __enter__(self) -> "Console":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _watch(self, wait: ProgressLine, ended: threading.Event) -> None:
        """Print progress lines or show a bar, in a thread, so that a blocked event loop does not hide it."""
        if ended.wait(SHOW_AFTER_SECONDS):
            return
        if self.is_terminal:
            self._show(wait)
            return
        self.line(f"{wait.description} ...")
        while not ended.wait(REPEAT_SECONDS):
            self.line(str(wait))
        if wait.is_complete:
            self.line(f"{wait.description}: done in {time.monotonic() - wait.started:.0f} s")

    def _show(self, wait: ProgressLine) -> None:
        with self._lock:
            self._open_screen()
            assert self._progress is not None
            task = self._progress.add_task(escape(wait.description), total=wait.total, done=wait.done)
            self._progress.update(task, completed=wait.completed)
            self._bars[wait] = task

    def _open_screen(self) -> None:
        if self._progress is None:
            self._progress = LiveScreen(self._rich)
            self._progress.start()

    def _refresh(self, wait: ProgressLine) -> None:
        with self._lock:
            if self._progress is not None and wait in self._bars:
                self._progress.update(self._bars[wait], completed=wait.completed, total=wait.total, done=wait.done)

    def _hide(self, wait: ProgressLine) -> None:
        with self._lock:
            task = self._bars.pop(wait, None)
            if self._progress is None or task is None:
                return
            self._progress.remove_task(task)
            if not self._bars and not self._rows:  # the curves stay
                self._progress.stop()
                self._progress = None
