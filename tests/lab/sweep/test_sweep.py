"""Sweeps: the runs of a grid, statistics over seeds, and the table."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from builders import asked, scored, trajectory, write_config
from torl.base.errors import ConfigError
from torl.run.records import metric_names as names
from torl.run.records.files import METRICS_FILE, SUMMARY_FILE
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.writers import write_trajectories
from torl_lab.evaluation.estimates import difference_over_seeds, mean_over_seeds
from torl_lab.evaluation.output import markdown
from torl_lab.sweep.command import as_json, main, read_arguments, read_sweep, sweep_table
from torl_lab.sweep.grid import SweepRun, is_finished, read_grid


def test_a_grid_has_all_combinations() -> None:
    combinations = read_grid(["reward.wrong=-1,0", "rollout.stop=[],['a','b']"])
    assert [list(each.settings.values()) for each in combinations] == [
        ["-1", "[]"],
        ["-1", "['a','b']"],
        ["0", "[]"],
        ["0", "['a','b']"],
    ]
    assert combinations[0].label == "wrong = -1, stop = []"
    assert "/" not in read_grid(["data.train=a/b.jsonl,c"])[0].name


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("[[0,100],[5,200]],300", ["[[0,100],[5,200]]", "300"]),
        ('"a,b", c', ['"a,b"', "c"]),
        ("['a,]'],['b']", ["['a,]']", "['b']"]),
        (r'"a\",b",c', [r'"a\",b"', "c"]),
        ("{a = [1,2], b = 3},{}", ["{a = [1,2], b = 3}", "{}"]),
        ("it's,that's", ["it's", "that's"]),
        ("1,1,,2", ["1", "2"]),
        ("a],b", ["a]", "b"]),
    ],
)
def test_commas_in_brackets_and_quotes_separate_nothing(values: str, expected: list[str]) -> None:
    assert [each.settings["x.y"] for each in read_grid([f"x.y={values}"])] == expected


def test_settings_that_end_alike_have_their_full_names() -> None:
    (found,) = read_grid(["learner.learning_rate=1e-6", "critic.learning_rate=5e-6", "run.steps=3"])
    assert found.label == "learner.learning_rate = 1e-6, critic.learning_rate = 5e-6, steps = 3"
    assert found.name == "learning_rate=1e-6_learning_rate=5e-6_steps=3", "the directories of earlier sweeps"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--grid", "rollout.max_response_tokens=[[0,1],2"], "a bracket is not closed"),
        (["--grid", "rollout.max_tool_calls=0,1", "--run.directory", "runs/mine"], "--run.directory cannot be set"),
        (["--grid", "rollout.max_tool_calls"], "must be section.setting=VALUE,VALUE"),
        (["--grid", "rollout.max_tool_calls="], "must be section.setting=VALUE,VALUE"),
        (["--grid", "run.seed=1,2"], "cannot set run.seed"),
        (["--grid", "rollout.temperature=1", "rollout.temperature=2"], "given twice"),
        (["--grid", "rollout.max_tol_calls=1"], "max_tol_calls"),
        (["--grid", "rollout.max_tool_calls=0,-3"], "max_tool_calls"),  # the second run, before the first is trained
        (["--grid", "data.train=a/b,a:b"], "same directory"),
        (["--grid", "rollout.max_tool_calls=0", "--seeds", "0"], "at least 1"),
        ([], "--grid is required"),
    ],
)
def test_an_invalid_sweep_is_refused_before_its_first_run(words: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        read_arguments(["demo", *words, "--output", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


def runs_of(output: Path, *, seeds: int = 2) -> list[SweepRun]:
    words = ["demo", "--grid", "rollout.max_tool_calls=0,1", "--seeds", str(seeds), "--run.steps", "3"]
    return read_arguments([*words, "--output", str(output)])[1]


def test_runs_of_a_sweep(tmp_path: Path) -> None:
    runs = runs_of(tmp_path)
    assert [(run.config.rollout.max_tool_calls, run.seed, run.config.run.seed) for run in runs] == [
        (0, 0, 0),
        (1, 0, 0),
        (0, 1, 1),
        (1, 1, 1),
    ]
    assert len({run.directory for run in runs}) == 4
    assert all(run.config.run.steps == 3 for run in runs)


def test_runs_with_other_settings_are_not_mixed(tmp_path: Path) -> None:
    run = runs_of(tmp_path)[0]
    assert not is_finished(run)
    run.directory.mkdir(parents=True)
    write_config(
        run.directory, run.config.model_copy(update={"run": run.config.run.model_copy(update={"resume": True})})
    )
    assert not is_finished(run)  # interrupted
    (run.directory / SUMMARY_FILE).write_text("{}")
    assert is_finished(run)
    other = run.config.model_copy(update={"run": run.config.run.model_copy(update={"steps": 4})})
    write_config(run.directory, other)
    with pytest.raises(ConfigError, match="contains a run with other settings"):
        is_finished(run)


def test_interval_over_seeds_covers_the_mean() -> None:
    """Simulated: 95 % of the intervals of three seeds contain the true mean; a single seed's covers problems only."""
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(2000):
        means = generator.normal(0.5, 0.1, 3)
        found = mean_over_seeds({seed: {"a": mean, "b": mean} for seed, mean in enumerate(means)})
        assert found.half_width is not None
        covered += abs(found.value - 0.5) <= found.half_width
    assert 0.935 < covered / 2000 < 0.965
    one = mean_over_seeds({0: {"a": 0.0, "b": 1.0, "c": 1.0, "d": 0.0}})
    assert one.half_width == pytest.approx(1.96 * np.std([0, 1, 1, 0], ddof=1) / 2)


def test_interval_of_equal_accuracies_is_not_empty() -> None:
    """Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method 3: 0 of 20."""
    for accuracy in (0.0, 1.0):
        found = mean_over_seeds({0: dict.fromkeys(map(str, range(20)), accuracy)})
        assert found.half_width == pytest.approx(0.1611, abs=5e-5)


def test_differences_are_paired_by_seed_and_problem() -> None:
    baseline = {0: {"a": 0.0, "b": 1.0}, 1: {"a": 0.5, "b": 1.0}, 7: {"a": 1.0}}
    changed = {0: {"a": 0.25, "b": 1.0}, 1: {"a": 0.75, "b": 1.0, "c": 1.0}}
    found = difference_over_seeds(changed, baseline)
    assert found is not None
    assert (found.value, found.half_width, found.verdict) == (0.125, 0.0, "helps")
    assert difference_over_seeds(changed, {9: {"a": 0.0}}) is None
    worse = difference_over_seeds({0: {"a": 0.0}, 1: {"a": 0.0}}, {0: {"a": 0.5}, 1: {"a": 0.55}})
    assert worse is not None
    assert worse.verdict == "harms"
    unsure = difference_over_seeds({0: {"a": 0.0}, 1: {"a": 1.0}}, {0: {"a": 0.5}, 1: {"a": 0.6}})
    assert unsure is not None
    assert unsure.verdict == "no difference seen"


def finish(run: SweepRun, correct: str) -> None:
    """Write the records of a finished run that solved these problems."""
    run.directory.mkdir(parents=True)
    for step, solved in ((0, ""), (3, correct)):
        records = [
            TrajectoryRecord(step, each.trajectory, each.grade)
            for problem in "abcd"
            for each in [scored(trajectory("x", prompt=asked(problem)), problem in solved)]
        ]
        write_trajectories(run.directory, step, records, evaluation_set="heldout")
    rows = [{"step": step, names.CODE_RATIO: 0.5 + step / 10, names.TIME_STEP: 1.0} for step in (1, 2, 3)]
    (run.directory / METRICS_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run.directory / SUMMARY_FILE).write_text("{}")


def test_table_of_a_sweep_has_the_finished_runs(tmp_path: Path) -> None:
    runs = runs_of(tmp_path)
    for run, correct in zip(runs[:3], ("a", "ab", "ac"), strict=True):
        finish(run, correct)
    results = read_sweep(runs)
    table = sweep_table(results)
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["max_tool_calls = 0"][:2] == ("2", "37.5 ± 158.8")  # t of one degree of freedom
    assert rows["max_tool_calls = 1"][:4] == ("1", "50.0 ± 56.6", "+25.0 ± 49.0", "no difference seen")
    assert rows["max_tool_calls = 1"][4] == "0.70"
    assert "| max_tool_calls = 1 | 1 |" in markdown(table)
    encoded = json.loads(json.dumps(as_json(results)))
    assert encoded[1]["settings"] == {"rollout.max_tool_calls": "1"}
    assert encoded[1]["difference"]["heldout"]["value"] == pytest.approx(0.25)


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["demo", "--grid", "rollout.max_tool_calls=0,1", "--output", str(tmp_path), "--model.path", "no/such/model"]
    assert main(words) == 1
    error = capfd.readouterr().err
    assert "2 of 2 runs failed" in error
    assert error.count("no such file") == 2


def test_run_dies_with_a_sweep_that_was_killed(tmp_path: Path) -> None:
    """The program that stands for Python writes its process id instead of training."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ "$1" = -m ] || exec {sys.executable} "$@"\necho $$\nexec sleep 1000 >&2\n')
    python.chmod(0o755)
    program = (
        "import asyncio, sys, types; from pathlib import Path; from torl_lab.sweep import grid; "
        f"sys.executable = {str(python)!r}; asyncio.subprocess.DEVNULL = None; "
        "asyncio.run(grid._train(types.SimpleNamespace(directory=Path('none'), words=())))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as sweep:
        assert sweep.stdout is not None
        child = Path(f"/proc/{int(sweep.stdout.readline())}/stat")
        assert child.exists()
        sweep.kill()
        sweep.wait()
        deadline = time.monotonic() + 60
        while child.exists() and child.read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < deadline, "the run outlived its sweep"
            time.sleep(0.01)
