"""Checks of other packages: the one of docs/doctor.md fires in `torl doctor` and in a run; invalid ones are refused."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from builders import write_config
from places import ROOT
from planted_runs import Case, config, played, records
from torl.base.errors import ConfigError
from torl.run.records.files import METRICS_FILE
from torl.run.records.writers import RunWriter
from torl.training.monitor import Monitors
from torl_lab.doctor.command import main
from torl_lab.doctor.registry import GROUP

MODULE, METADATA = re.findall(r"```(?:python|toml)\n# \S+\n(.*?)```", (ROOT / "docs/doctor.md").read_text(), re.DOTALL)
NAME = "many-calls"
CASE = records(lambda index, each: played(each, tool_calls=each.trajectory.tool_calls * 3))
"""Responses with three calls in the latest steps."""
FOUND = "80 of 80 responses have more than two calls"
Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Write a package outside the tree as if it were installed, and return the directory that Python finds it in."""

    def write(module: str = MODULE, entries: Mapping[str, str] | None = None) -> Path:
        packages = tmp_path / "packages"
        metadata = packages / "strange_checks-1.0.dist-info"
        metadata.mkdir(parents=True)
        (packages / "my_checks.py").write_text(module, encoding="utf-8")
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: strange-checks\nVersion: 1.0\n", "utf-8")
        found = tomllib.loads(METADATA)["project"]["entry-points"][GROUP] if entries is None else entries
        lines = [f"[{GROUP}]", *(f"{name} = {value}" for name, value in found.items())]
        (metadata / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
        monkeypatch.syspath_prepend(packages)
        return packages

    yield write
    sys.modules.pop("my_checks", None)


def write_run(directory: Path, case: Case) -> Path:
    with RunWriter(directory) as writer:
        for number, metrics, trajectories, numbers in case.steps():
            writer.write_trajectories(number, trajectories)
            writer.write_tokens(number, numbers)
            writer.write_metrics(number, metrics)
    write_config(directory, case.config)
    return directory


def torl_doctor(packages: Path, *words: object) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "torl", "doctor", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def watch(case: Case, directory: Path) -> list[str]:
    """The warnings of the monitors that a run opens by itself."""
    (directory / "logs").mkdir(parents=True)
    (directory / METRICS_FILE).touch()
    monitors = Monitors.installed(case.config)
    monitors.open(case.config, directory, 0)
    return [text for step in case.steps() for text in monitors.observe(*step).warnings]


def test_check_fires_in_torl_doctor(install: Install, tmp_path: Path) -> None:
    packages, run = install(), write_run(tmp_path / "run", CASE)
    done = torl_doctor(packages, run)
    assert done.returncode == 1, done.stderr
    assert f"  {NAME}: Most responses call a tool again and again.\n    found: {FOUND}\n" in done.stdout
    assert "    threshold of fraction of the latest responses with more than two calls: above 0.5 (our runs)\n" in (
        done.stdout
    )
    assert re.search(r"^    see: trajectories/step_\S+\.jsonl:\d+, ", done.stdout, re.MULTILINE)
    assert "\n  findings: 1, " in done.stdout
    listed = torl_doctor(packages, "--list")
    assert (listed.returncode, NAME in listed.stdout) == (0, True)


def test_check_fires_in_a_run(install: Install, tmp_path: Path) -> None:
    install()
    (warning,) = watch(CASE, tmp_path / "run")
    assert re.fullmatch(rf"step \d+: {NAME}: \d+ of 80 responses have more than two calls; rollout\..*", warning)
    assert watch(Case(), tmp_path / "flawless") == []


def test_ignored_check_is_known_and_not_imported(install: Install, tmp_path: Path) -> None:
    case = replace(CASE, config=config(health__ignore=[NAME]))
    with pytest.raises(ConfigError, match=f"health.ignore: '{NAME}' is not a check"):
        watch(case, tmp_path / "unknown")
    install("raise RuntimeError('imported')")
    assert watch(case, tmp_path / "run") == []
    assert "my_checks" not in sys.modules


WITHOUT_FUNCTION = """
from torl_lab import Limit, RunCheck
many_calls = RunCheck("", metric="", limits=[Limit(0, "", "")], fix="")
"""
IMPORT, VALUE = "cannot be imported: ", "cannot be imported: ValueError: "


@pytest.mark.parametrize(
    ("module", "name", "reason"),
    [
        ("raise ImportError('nothing')", NAME, f"{IMPORT}ImportError: nothing"),
        ("", NAME, f"{IMPORT}AttributeError: "),
        ("def many_calls(history): ...", NAME, "must be of the class RunCheck, got <function many_calls"),
        (WITHOUT_FUNCTION, NAME, "must have the name of its check, ''"),
        (MODULE, "calls", "must have the name of its check, 'many-calls'"),
        (MODULE, "no-signal", "has a name of torl itself; the package must choose another"),
        (MODULE.replace('"above",', '"over",'), NAME, f"{VALUE}fires must be None, "),
        (re.sub("limits=.*", "limits=[],", MODULE), NAME, f"{VALUE}limits must be one Limit or more"),
        (re.sub("limits=.*", "limits=[0.5],", MODULE), NAME, f"{VALUE}limits must be one Limit or more"),
    ],
)
def test_invalid_check_is_refused_in_one_line(
    install: Install, capsys: pytest.CaptureFixture[str], module: str, name: str, reason: str
) -> None:
    install(module, {name: "my_checks:many_calls"})
    expected = f"torl.checks: {name} = my_checks:many_calls of the package strange-checks {reason}"
    with pytest.raises(ConfigError, match=re.escape(expected)):
        Monitors.installed(config())
    Monitors.installed(config(health__mode="off"))  # is not refused: it makes no checks
    assert main(["--list"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {expected}")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise ZeroDivisionError('of a check')", "failed in many_calls(StepHistory); ZeroDivisionError: of a check"),
        ("raise SystemExit(3)", "failed in many_calls(StepHistory); SystemExit: 3"),
        (
            "return 0.75",
            "returned an invalid value from many_calls(StepHistory); expected a Measurement or None, got float 0.75",
        ),
        (
            "return torl_lab.Measurement(1.0, 'all', [3])",
            "failed in many_calls(StepHistory); AttributeError: 'int' object has no attribute 'group'",
        ),
    ],
)
def test_failing_check_stops_neither_run_nor_other_checks(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str, reason: str
) -> None:
    install(re.sub(r"    text = .*", f"    {body}\n", MODULE, flags=re.DOTALL))
    case = Case(metrics=lambda step, row: row | {"learner/changed_weights": 0.0})
    failure, finding = watch(case, tmp_path / "watched")
    assert failure.startswith(f"step 1: {NAME}: the check (my_checks:many_calls) {reason}; at ")
    assert ": rate-without-effect: " in finding
    assert main([str(write_run(tmp_path / "run", case))]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("  rate-without-effect: ") for line in lines) == 1
    assert sum(line.startswith(f"  FAILED {NAME}: the check (my_checks:many_calls) {reason}") for line in lines) == 1


def test_check_without_its_input_is_skipped_with_its_reason(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(re.sub(r"    text = .*", "    raise torl_lab.MissingInputError('no calls')\n", MODULE, flags=re.DOTALL))
    run = write_run(tmp_path / "run", Case())
    assert main([str(run)]) == 0
    assert f"  SKIPPED {NAME}: no calls\n" in capsys.readouterr().out
