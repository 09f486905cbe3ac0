"""The package of docs/extending.md adds a command, a monitor, a panel and a reader; a broken one is refused."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from places import ROOT
from saved_pages import figures
from torl.__main__ import main
from torl_lab.exchange import readers
from torl_lab.view.panels import installed_panels
from viewed_runs import row, write_run

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
[MODULE] = re.findall(r"```python\n# my_lab.py\n(.*?)```", PAGE, re.DOTALL)
[ENTRY_POINTS] = re.findall(r"```toml\n(\[project.entry-points.*?)```", PAGE, re.DOTALL)
ENTRIES = tomllib.loads(ENTRY_POINTS)["project"]["entry-points"]
WITH_MISTAKES = """
NUMBER = 3
MISSING = torl.Command("nowhere:main", "none")
NO_FUNCTION = torl.Command("my_lab:NUMBER", "none")
NO_NAME = torl.Command(print, "has no name of a function")
NO_WORDS = torl.Command("builtins:globals", "takes no words")
NO_STATUS = torl.Command("builtins:list", "returns a list")
TAKEN = [torl_lab.Panel("Entropy", "Mine.", {"mine": "learner/entropy"})]
"""


def install(site: Path, entries: dict[str, dict[str, str]], name: str = "my_lab") -> Path:
    """Write the module with what an installer writes for it, and return the directory."""
    metadata = site / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / f"{name}.py").write_text(MODULE + WITH_MISTAKES, encoding="utf-8")
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    groups = (
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in each.items()) for group, each in entries.items()
    )
    (metadata / "entry_points.txt").write_text("\n".join(groups), encoding="utf-8")
    return site


@pytest.fixture
def torl_with_package(tmp_path: Path) -> Callable[..., str]:
    """`torl` in a process that finds the package: a function of its words, which returns its output."""
    site = install(tmp_path / "site", ENTRIES)
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "torl", *words]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_commands_use_what_a_package_adds(torl_with_package: Callable[..., str], tmp_path: Path) -> None:
    assert "  hello     greet" in torl_with_package("--help")
    assert torl_with_package("hello", "you") == "hello you\n"

    (tmp_path / "two.pairs").write_text("2+2?\t4\tIt is \\boxed{4}.\n2*2?\t4\t\\boxed{5}\n")
    torl_with_package("convert", "two.pairs", "two.jsonl", "--grade")
    rows = [json.loads(line) for line in (tmp_path / "two.jsonl").read_text().splitlines()]
    assert [(each["question"], each["correct"]) for each in rows] == [("2+2?", True), ("2*2?", False)]

    assert torl_with_package("view", "--index-only", "two.pairs", "--index", "indexes").strip()
    assert list((tmp_path / "indexes").iterdir())

    run = write_run(tmp_path / "run", {"step_000000": [row()]})
    (run / "metrics.jsonl").write_text(json.dumps({"step": 0, "time": 1.0, "learner/tokens": 7.0}) + "\n")
    torl_with_package("report", "run")
    assert figures(run / "report.html")["Learned tokens"]["note"] == "Tokens of a step."


def test_a_run_uses_the_monitor_of_a_package(torl_with_package: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "examples.jsonl").write_text('{"text": "one plus one is two"}\n' * 4)
    settings = {
        "finetune.train": "examples.jsonl",
        "finetune.batch_size": "2",
        "run.directory": "tuned",
        "run.steps": "1",
        "data.evaluation": "{}",
        "evaluation.every_steps": "0",
        "checkpoint.every_steps": "1",
        "learner.cpu_threads": "1",
    }
    torl_with_package("finetune", "demo", *(word for name, value in settings.items() for word in (f"--{name}", value)))
    assert (tmp_path / "tuned" / "diary.txt").read_text().startswith("an evaluation or a checkpoint\n")
    assert "Learned tokens" in figures(tmp_path / "tuned" / "report.html")


@pytest.fixture
def fresh() -> Iterator[None]:
    """Nothing of an earlier package is kept."""
    for known in (installed_panels, readers):
        known.cache_clear()
    yield
    sys.modules.pop("my_lab", None)
    for known in (installed_panels, readers):
        known.cache_clear()


USE = {
    "torl.commands": ("broken",),
    "torl.monitors": ("train", "demo", "--show"),
    "torl.panels": ("report", "run"),
    "torl.readers": ("convert", "two.pairs", "out.jsonl"),
}
WRONG = {
    "torl.commands": "must be of the class Command, got 3",
    "torl.monitors": "must be a subclass of Monitor, got 3",
    "torl.panels": "must be of the class Panel, got 3",
    "torl.readers": "must be of the class Reader, got 3",
}


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("group", USE)
@pytest.mark.parametrize("kind", ["another type", "no module", "no name"])
def test_a_broken_entry_is_refused_in_one_line(
    group: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target, message, fix = {
        "another type": ("my_lab:NUMBER", WRONG[group], ""),
        "no module": (
            "nowhere:IT",
            "cannot be imported: ModuleNotFoundError: No module named 'nowhere'",
            "; install nowhere, or uninstall the package my_lab",
        ),
        "no name": (
            "my_lab:IT",
            "cannot be imported: AttributeError: module 'my_lab' has no attribute 'IT'",
            "; correct or uninstall the package my_lab",
        ),
    }[kind]
    (error,) = refusal(USE[group], {group: {"broken": target}}, tmp_path, monkeypatch, capsys)
    assert error == f"error: {group}: broken = {target} of the package my_lab {message}{fix}"


@pytest.mark.usefixtures("fresh")
def test_a_class_in_place_of_its_object_is_refused_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = {"torl.readers": {"pairs": "my_lab:Pairs"}}
    (error,) = refusal(USE["torl.readers"], entries, tmp_path, monkeypatch, capsys)
    assert error.endswith(
        "my_lab:Pairs of the package my_lab must be of the class Reader, got <class 'my_lab.Pairs'>; name an object of "
        "it, such as Pairs()"
    )


@pytest.mark.usefixtures("fresh")
def test_a_mistake_in_a_package_is_shown_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "more").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "more"))
    (tmp_path / "more/mistaken.py").write_text("import torl\n\n1 / 0\n")
    (error,) = refusal(USE["torl.readers"], {"torl.readers": {"x": "mistaken:X"}}, tmp_path, monkeypatch, capsys)
    place = f"({tmp_path / 'more/mistaken.py'}:3)"
    assert error.endswith(
        f"cannot be imported: ZeroDivisionError: division by zero {place}; correct or uninstall the package my_lab"
    )


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("command", ["convert", "view"])
def test_help_lists_the_formats_of_all_packages_also_of_broken_ones(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = {"torl.readers": {"pairs": "my_lab:PAIRS", "broken": "nowhere:IT", "TRL": "my_lab:PAIRS"}}
    monkeypatch.syspath_prepend(str(install(tmp_path, entries)))
    with pytest.raises(SystemExit) as exit:
        main([command, "--help"])
    assert exit.value.code in (0, None)
    assert "ATIF, Inspect, verifiers, TRL, verl, slime or miles, broken, pairs.\n" in capsys.readouterr().out
    assert "my_lab" not in sys.modules


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("group", "name", "target", "message"),
    [
        ("torl.commands", "train", "my_lab:HELLO", "of the package my_lab has a name of torl itself"),
        ("torl.commands", "report", "my_lab:HELLO", "uninstall one of the packages"),
        ("torl.monitors", "health", "my_lab:Diary", "uninstall one of the packages"),
        (
            "torl.panels",
            "mine",
            "my_lab:TAKEN",
            "of the package my_lab has the title 'Entropy', as a panel of torl does",
        ),
        ("torl.readers", "TRL", "my_lab:PAIRS", "of the package my_lab has a name of torl itself"),
    ],
)
def test_a_name_that_is_taken_is_refused(
    group: str,
    name: str,
    target: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (error,) = refusal(USE[group], {group: {name: target}}, tmp_path, monkeypatch, capsys)
    assert error.startswith(f"error: {group}: ")
    assert target in error
    assert "my_lab" in error
    assert message in error


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("words", [("train", "demo", "--show"), ("presets",), ("--help",), ("report", "run")])
@pytest.mark.parametrize(
    ("name", "message"), [("train", "has a name of torl itself"), ("report", "uninstall one of the packages")]
)
def test_every_command_refuses_a_name_that_is_taken(
    name: str,
    message: str,
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (error,) = refusal(words, {"torl.commands": {name: "my_lab:HELLO"}}, tmp_path, monkeypatch, capsys)
    assert error.startswith("error: torl.commands: ")
    assert message in error


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("MISSING", ": nowhere:main cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("NO_FUNCTION", ": my_lab:NUMBER must be a function of the words after the command, got 3"),
        ("NO_NAME", ': its command must name its function as "module:function", got <built-in function print>'),
        ("NO_WORDS", ": builtins:globals must be a function of the words after the command: too many positional"),
        ("NO_STATUS", ": builtins:list must return an exit status, got ['a', 'b']"),
    ],
)
def test_a_command_without_a_function_is_refused_in_one_line(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = {"torl.commands": {"broken": f"my_lab:{name}"}}
    (error,) = refusal(("broken", "a", "b"), entries, tmp_path, monkeypatch, capsys)
    assert error.startswith(f"error: torl.commands: broken = my_lab:{name} of the package my_lab{message}")


@pytest.mark.usefixtures("fresh")
def test_a_failing_reader_is_named_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "odd.pairs").write_text("no tab\n")
    words = ("convert", "odd.pairs", "out.jsonl")
    (error,) = refusal(words, {"torl.readers": {"pairs": "my_lab:PAIRS"}}, tmp_path, monkeypatch, capsys)
    assert "odd.pairs: not a file of pairs: ValueError: not enough values to unpack" in error
    assert "my_lab.py:" in error
    assert 'question, reference, response = line.split("\\t")' in error


def refusal(
    words: tuple[str, ...],
    entries: dict[str, dict[str, str]],
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> list[str]:
    """The lines that a command prints to standard error with these entry points; it fails."""
    monkeypatch.syspath_prepend(str(install(directory / "site", entries)))
    monkeypatch.chdir(directory)
    write_run(directory / "run", {"step_000000": [row()]})
    (directory / "two.pairs").write_text("2+2?\t4\t4\n")
    assert main(words) in (1, 2)
    return capsys.readouterr().err.splitlines()
