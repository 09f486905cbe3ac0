"""The console in a log file and on a (pseudo) terminal."""

import io
import math
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Sequence

import pytest
import rich.console

import torl.run.display.console
from builders import call, failed, printed, scored, scored_group, trajectory
from torl.base.types import Outcome, ScoredTrajectory
from torl.run.display.console import Console
from torl.run.display.live_screen import LiveScreen, choose_highlight, sparkline
from torl.run.records import metric_names as names

METRICS = {
    names.ACCURACY: 0.25,
    names.CODE_RATIO: 0.5,
    names.REWARD_MEAN: -0.5,
    names.ENTROPY: 1.2345,
    names.RESPONSE_TOKENS: 80.4,
    names.TIME_STEP: 3.21,
}


def test_one_plain_line_for_each_step() -> None:
    file = io.StringIO()
    console = Console(file)
    console.step(1, 50, METRICS)
    console.step(2, 50, METRICS | {names.PASS_RATIO: 0.75})
    header, first, second = file.getvalue().splitlines()
    assert header.split() == ["step", "accuracy", "code", "pass", "reward", "entropy", "tokens", "seconds"]
    assert first.split() == ["1/50", "0.250", "0.50", "-", "-0.500", "1.234", "80", "3.2"]
    assert second.split()[3] == "0.75"
    assert len(header) == len(first) == len(second)
    assert "\x1b" not in file.getvalue()


def test_the_header_comes_back() -> None:
    file = io.StringIO()
    console = Console(file)
    for step in range(60):
        console.step(step, 60, METRICS)
    assert sum("accuracy" in line for line in file.getvalue().splitlines()) == 3


def test_text_is_not_markup() -> None:
    file = io.StringIO()
    console = Console(file)
    console.line("[red]a[/red] [0, 1] [/")
    console.warning("b [bold]")
    console.evaluation(4, "[x]", {names.ACCURACY: 0.5, names.GREEDY_ACCURACY: 0.75})
    assert file.getvalue().splitlines() == [
        "[red]a[/red] [0, 1] [/",
        "warning: b [bold]",
        "evaluation of [x] at step 4: accuracy 0.500, greedy 0.750",
    ]


def test_short_waits_are_silent_and_long_ones_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torl.run.display.console, "REPEAT_SECONDS", 0.2)
    file = io.StringIO()
    with Console(file) as console:
        monkeypatch.setattr(torl.run.display.console, "SHOW_AFTER_SECONDS", 60.0)
        with console.progress("quick"):
            pass
        monkeypatch.setattr(torl.run.display.console, "SHOW_AFTER_SECONDS", 0.2)
        with console.progress("playing episodes", total=128) as wait:
            wait.advance(34)
            while "34/128" not in file.getvalue():  # until it has been printed, however late
                time.sleep(0.01)
    lines = file.getvalue().splitlines()
    assert not any("quick" in line for line in lines)
    assert lines[0] == "playing episodes ..."
    assert any(re.fullmatch(r"playing episodes: 34/128, \d+ s", line) for line in lines)
    assert lines[-1].startswith("playing episodes: done in")


def test_interrupted_wait_passes_the_error_on_and_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torl.run.display.console, "SHOW_AFTER_SECONDS", 0.0)
    file = io.StringIO()
    console = Console(file)

    def work() -> None:
        while not file.getvalue():  # until it has been printed, however late
            time.sleep(0.01)
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"), console.progress("playing episodes"):
        work()
    assert file.getvalue() == "playing episodes ...\n"


def run_on_terminal(program: str, width: int) -> str:
    """Run a Python program on a pseudo-terminal of this width, and return its output."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(width)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=slave, stderr=slave, env=environment) as process:
        os.close(slave)
        output = b""
        while True:
            try:
                piece = os.read(master, 4096)
            except OSError:
                break
            if not piece:
                break
            output += piece
        assert process.wait() == 0, output.decode()
    os.close(master)
    return output.decode()


def test_bars_on_a_terminal_are_shown_and_wiped() -> None:
    program = """
import time, torl.run.display.console as module
module.SHOW_AFTER_SECONDS = 0.1
with module.Console() as console:
    assert console.is_terminal
    with console.progress("outer", total=10) as outer, console.progress("inner"):
        while len(console._bars) < 2:
            time.sleep(0.01)
        outer.update(completed=7)
        console.line("a line above the bars")
        console._progress.refresh()
    console.line("after")
"""
    text = run_on_terminal(program, 100)
    for words in ("outer", "inner", "7/10", "a line above the bars", "after"):
        assert words in text
    assert text.rindex("outer") < text.rindex("after")
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")  # the cursor is visible again


@pytest.mark.parametrize("width", [80, 40])
def test_curves_stay_below_the_lines_of_steps(width: int) -> None:
    program = """
from torl.run.records import metric_names as names
from torl.run.display.console import Console
with Console() as console:
    for step in range(60):
        metrics = {names.ACCURACY: step / 60, names.ENTROPY: 1 - step / 60}
        metrics |= {names.TIME_STEP: 4.0, names.TIME_ROLLOUT: 3.0}
        console.step(step + 1, 60, metrics)
    console._progress.refresh()
console.line("after")
"""
    text = run_on_terminal(program, width)
    screen = text[text.rindex("accuracy ") :].replace("\r", "")
    curves = [re.sub(r"\x1b\[[0-9?;]*[a-zA-Z]", "", line) for line in screen.split("\n")]
    assert curves[0].startswith("accuracy     0.983 ▁")
    assert curves[0].rstrip().endswith("█")
    assert curves[1].startswith(" entropy     0.017 █")
    assert curves[3].rstrip() == "    time     4.0 s rollout 75%"
    assert max(map(len, curves)) <= width
    assert "after" in curves[-2]
    assert "60/60" in text


def calling(text: str, *, correct: bool, outcomes: Sequence[Outcome] = (), group: str = "0/p") -> ScoredTrajectory:
    turns = ["```python\n1\n```\n```output"] * len(outcomes)
    calls = [call("1", outcome) for outcome in outcomes]
    return scored(trajectory(*turns, text, calls=calls, group=group, turn_tokens=5), correct)


def test_highlight_is_a_recovery_or_the_rarest_success() -> None:
    easy = scored_group(calling("easy", correct=True, outcomes=[printed()]), calling("plain", correct=True))
    hard = scored_group(calling("rare", correct=True, outcomes=[printed()]), calling("no", correct=False))
    recovered = scored_group(calling("late", correct=True, outcomes=[failed(), printed()]))
    wrong = scored_group(calling("void", correct=False), calling("tried", correct=False, outcomes=[failed()]))
    for groups, expected in (
        ([easy, hard, wrong], "rare"),
        ([easy, recovered, hard], "late"),
        ([wrong], "tried"),
        ([scored_group(calling("plain", correct=True)), wrong], "plain"),
    ):
        found = choose_highlight(groups)
        assert found is not None
        assert found.member.trajectory.text.endswith(expected)
    assert choose_highlight([]) is None


def test_screen_has_rates_and_a_trajectory_without_control_characters() -> None:
    member = calling("a\x1b[31mred\u202e\n" + "long " * 50 + "\nend", correct=True, outcomes=[printed(), failed()])
    screen = LiveScreen(rich.console.Console(file=io.StringIO(), width=60, height=30, force_terminal=True))
    metrics = {names.ACCURACY: 1.0, names.TIME_STEP: 60.0, names.TIME_ROLLOUT: 3.0, names.TIME_LEARN: 2.0}
    columns = (names.ACCURACY,)
    screen.add_step(8, 10, metrics | {names.LEARNED_TOKENS: 5000.0}, columns, [scored_group(member, False)])
    lines = screen.lines(100)
    assert lines[2] == "   rates 5 sampled tokens/s, 0.7 calls/s, 2,500 learned tokens/s, 2 min left"
    assert lines[3] == "right in step 8, 50% of its group are right, call ok, call error"
    assert lines[-3] == "  a·[31mred·"
    assert lines[-1] == "  end"
    assert max(map(len, lines)) == 100
    assert all(line.isprintable() for line in lines)
    small = LiveScreen(rich.console.Console(file=io.StringIO(), width=60, height=10, force_terminal=True))
    small.add_step(1, 1, metrics, columns, [scored_group(member)])
    assert len(small.lines(60)) == 3  # the curve, the times and the rates


def test_screen_leaves_out_a_value_that_is_not_finite() -> None:
    screen = LiveScreen(rich.console.Console(file=io.StringIO(), width=60, height=30, force_terminal=True))
    columns = (names.LOSS, names.ENTROPY)
    for step, loss in enumerate((1.0, math.nan, 0.5, math.inf)):
        screen.add_step(step, 4, {names.LOSS: loss, names.ENTROPY: math.nan}, columns)
    assert screen.lines(30) == [f"    loss    0.5000 {sparkline([1.0, 0.5], 11)}"]


def test_sparkline_spans_the_range_and_averages_what_does_not_fit() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 2, 6, 8], 2) == "▁█"
    assert sparkline([5, 5], 9) == "▁▁"
    assert sparkline([], 9) == sparkline([1.0], 0) == ""
