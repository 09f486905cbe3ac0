"""Several runs on one page: every number against a naive reading of the files that the runs wrote."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import torl_lab.report.command
from builders import asked, call, failed, scored, trajectory
from saved_pages import content, figures, line, tables
from torl.base.types import ScoredGroup
from torl.run.records import metric_names as names
from torl.run.records.dynamics import training_dynamics
from torl.run.records.rows import group_records
from torl.run.records.writers import RunWriter
from torl_lab.report.command import main
from torl_lab.report.comparison import write_comparison
from torl_lab.report.page import read_run
from torl_lab.view.panels import RunRecords, panels_of

STEPS, SETS = 21, ("easy", "hard")
BLOCK = "```python\nx\n```\n"


def groups(chance: Random, limit: int) -> list[ScoredGroup]:
    """Responses with at most `limit` calls, some of which fail, and some with a block after the answer."""
    made = []
    for problem in ("p", "q"):
        prompt = asked(problem)
        members = []
        for sample in range(3):
            calls = [call("x\n", failed() if chance.random() < 0.4 else None) for _ in range(chance.randint(0, limit))]
            turns = [f"hm\n{BLOCK}```output" for _ in calls]
            last = r"so \boxed{1}" + (f"\n{BLOCK}" if chance.random() < 0.3 else "")
            response = trajectory(
                *turns, last, prompt=prompt, calls=calls, sample=sample, turn_tokens=chance.randint(1, 9)
            )
            right = chance.random() < 0.5
            members.append(scored(response, right))
        made.append(ScoredGroup(prompt, tuple(members)))
    return made


def make_run(directory: Path, limit: int, steps: int = STEPS) -> Path:
    chance = Random(limit)
    with RunWriter(directory) as writer:
        for step in range(steps):
            if step % 10 == 0:
                for name in SETS[: 2 if step else 1]:  # the second set was not there at first
                    played = groups(chance, limit)
                    writer.write_metrics(step, names.evaluation_metrics(name, training_dynamics(played)))
                    writer.write_trajectories(step, group_records(step, played), evaluation_set=name)
            played = groups(chance, limit)
            writer.write_metrics(step, training_dynamics(played) | {names.TIME_STEP: step + limit})
            writer.write_trajectories(step, group_records(step, played))
    (directory / "config.toml").write_text(f"[rollout]\nmax_tool_calls = {limit}\n", encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {f"calls{limit}": make_run(tmp_path_factory.mktemp(f"calls{limit}"), limit) for limit in (1, 2, 4)}


@pytest.fixture(scope="module")
def page(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("page") / "page.html"
    given = [f"{label}={directory}" for label, directory in runs.items()]
    assert main([*given, "--output", str(output)]) == 0
    return output


# --- the naive reading of the files, by their text --------------------------------------------------------------------


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(each) for each in path.read_text(encoding="utf-8").splitlines()]


def mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def measured(rows: list[dict[str, Any]]) -> dict[str, float | None]:
    """Each measure of the rows of one file by the title of its figure, followed by the dotted one."""
    calls = [(call["status"] == "ok", row["correct"]) for row in rows for call in row["tool_calls"]]
    blocks, ran, early = 0, len(calls), 0
    for row in rows:
        places = [found.start() for found in re.finditer("```python\n", row["sampled_text"])]
        blocks += len(places)
        early += sum(place < row["sampled_text"].index(r"\boxed") for place in places)
    return {
        "Training accuracy": mean([row["correct"] for row in rows]),
        "Code ratio": mean(["```python" in row["sampled_text"] for row in rows]),
        "Pass ratio": mean([ok for ok, _ in calls]),
        "Pass ratio by outcome": mean([ok for ok, correct in calls if correct]),
        "Pass ratio by outcome, pass ratio in incorrect responses": mean([ok for ok, correct in calls if not correct]),
        "Use of code": ran / blocks if blocks else None,
        "Use of code, code blocks before the answer": early / blocks if blocks else None,
        "Interactions": mean([len(row["tool_calls"]) for row in rows]),
        "Code blocks of a response": blocks / len(rows),
        "Recovered errors": mean([recovered(row) for row in rows]),
        "Lines of a code block": 1.0 if blocks else None,
        "Response length": mean([len(row["token_ids"]) for row in rows]),
        "Response length, sampled tokens": mean([sum(n for on, n in row["loss_mask"] if on) for row in rows]),
        "Reward": mean([row["reward"] for row in rows]),
    }


def recovered(row: dict[str, Any]) -> bool:
    """An error somewhere, followed by a run without one, in a correct response."""
    ended = "".join("+" if call["status"] == "ok" else "-" for call in row["tool_calls"])
    return row["correct"] and "-+" in ended


def naive_curve(run: Path, measure: str) -> tuple[list[int], list[float]]:
    """Steps, and the value of each."""
    found = {step: measured(read(run / "trajectories" / f"step_{step:06d}.jsonl"))[measure] for step in range(STEPS)}
    return [step for step, value in found.items() if value is not None], [
        value for value in found.values() if value is not None
    ]


def naive_accuracy(run: Path, set_name: str) -> dict[int, float]:
    files = (run / "trajectories").glob(f"evaluation_*_{set_name}.jsonl")
    return {int(file.name.split("_")[1]): sum(row["correct"] for row in read(file)) / 6 for file in files}


# --- the page ---------------------------------------------------------------------------------------------------------


MEASURES = list(
    measured([{"correct": True, "sampled_text": "", "tool_calls": [], "token_ids": [], "loss_mask": [], "reward": 0}])
)


@pytest.mark.parametrize("measure", MEASURES)
def test_a_curve_has_the_steps_of_the_records(page: Path, runs: dict[str, Path], measure: str) -> None:
    title, _, suffix = measure.partition(", ")
    for label, directory in runs.items():
        steps, values = line(figures(page)[title], label, suffix or None)
        naive_steps, naive_values = naive_curve(directory, measure)
        assert steps == naive_steps
        assert values == pytest.approx(naive_values)


def test_page_opens_with_means_of_sixteen_steps_or_as_many_as_asked(
    page: Path, runs: dict[str, Path], tmp_path: Path
) -> None:
    assert '"#/overview?smoothing=16"' in page.read_text(encoding="ascii")
    assert main([str(runs["calls1"]), str(runs["calls2"]), "--output", str(tmp_path / "p"), "--smoothing", "3"]) == 0
    assert '"#/overview?smoothing=3"' in (tmp_path / "p").read_text(encoding="ascii")


def test_a_set_has_a_figure_and_all_have_their_mean(page: Path, runs: dict[str, Path]) -> None:
    for label, directory in runs.items():
        easy, hard = (naive_accuracy(directory, name) for name in SETS)
        assert sorted(easy) == [0, 10, 20]
        assert sorted(hard) == [10, 20]
        for name, expected in (("easy", easy), ("hard", hard)):
            assert dict(zip(*line(figures(page)[f"Accuracy on {name}"], label), strict=True)) == pytest.approx(expected)
        means = {step: (easy[step] + hard[step]) / 2 for step in hard}
        assert dict(zip(*line(figures(page)["Accuracy, mean over sets"], label), strict=True)) == pytest.approx(means)


def test_table_has_results_of_the_runs(page: Path, runs: dict[str, Path]) -> None:
    for label, directory in runs.items():
        [row] = [row for row in tables(page)["At the end"] if row[0] == label]
        ends = [naive_accuracy(directory, name)[20] for name in SETS]
        training = np.mean(naive_curve(directory, "Training accuracy")[1][-16:])
        assert row[1:3] == [label.removeprefix("calls"), str(STEPS)]
        assert row[3:6] == [f"{value:.1%}" for value in (*ends, training)]
        assert row[6] == f"{np.mean(naive_curve(directory, 'Code ratio')[1][-16:]):.2f}"
        assert row[-1] == f"{(STEPS - 1) / 2 + int(row[1]):.1f}"  # a step takes its number and N


def test_accuracy_by_the_calls_that_runs_trained_with(page: Path, runs: dict[str, Path]) -> None:
    figure = figures(page)["Accuracy by N"]
    for name in SETS:
        expected = [naive_accuracy(directory, name)[20] for directory in runs.values()]
        assert line(figure, name) == ([1, 2, 4], pytest.approx(expected))
    expected = [np.mean(naive_curve(directory, "Training accuracy")[1][-16:]) for directory in runs.values()]
    assert line(figure, "training") == ([1, 2, 4], pytest.approx(expected))
    assert [each["run"] for each in figure["lines"] if each["label"] == "fit"] == [*SETS, "training"]
    solution = np.polynomial.polynomial.polyfit(np.log1p([1, 2, 4]), expected, 1)
    steps, values = line(figure, "training", "fit")
    assert (steps[0], steps[-1]) == (1, 4)
    assert values == pytest.approx(solution[0] + solution[1] * np.log1p(steps))


def test_series_follow_the_steps(page: Path, runs: dict[str, Path], tmp_path: Path) -> None:
    """The code ratio of each step against the ranks by counting, and the fit by the normal equations."""
    for label, directory in runs.items():
        [row] = [row for row in tables(page)["With the steps"] if row[:2] == [label, "code ratio"]]
        steps, values = naive_curve(directory, "Code ratio")
        ranks = [sum(a < b for a in values) + sum(a == b for a in values) / 2 + 0.5 for b in values]
        assert row[2] == f"{np.corrcoef(steps, ranks)[0, 1]:+.2f}"
        accuracies = naive_curve(directory, "Training accuracy")[1]
        others = [sum(a < b for a in accuracies) + sum(a == b for a in accuracies) / 2 + 0.5 for b in accuracies]
        assert row[3] == f"{np.corrcoef(ranks, others)[0, 1]:+.2f}"
        logs = np.log1p(steps)
        solution = np.linalg.lstsq(np.stack([np.ones(len(logs)), logs], axis=1), np.array(values), rcond=None)[0]
        assert row[4:6] == [f"{solution[0]:.3g}", f"{solution[1] * np.log(2):+.3g}"]
        assert row[6] == f"{np.corrcoef(logs, values)[0, 1] ** 2:.2f}"
    young = make_run(tmp_path / "young", 1, steps=3)
    assert main([f"young={young}", "--output", str(tmp_path / "page.html")]) == 0
    assert "With the steps" not in tables(tmp_path / "page.html")


def test_runs_with_the_same_calls_have_no_chart_of_them(runs: dict[str, Path], tmp_path: Path) -> None:
    one = runs["calls1"]
    assert main([f"first={one}", f"<b>={one}", "--output", str(tmp_path / "page.html"), "--smoothing", "1"]) == 0
    page = tmp_path / "page.html"
    assert "Accuracy by N" not in figures(page)
    assert "<b>" in [row[0] for row in tables(page)["At the end"]]
    assert "<b>" not in page.read_text(encoding="ascii")
    assert line(figures(page)["Code ratio"], "<b>") == naive_curve(one, "Code ratio")


def test_one_run_has_its_own_page_written_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", 1)
    assert main([str(run)]) == 0
    assert capsys.readouterr().out.strip() == str(run / "report.html")
    assert (run / "report.html").is_file()
    assert main([str(run), "--smoothing", "3"]) == 2
    assert "the page of one run shows each step" in capsys.readouterr().err


def test_page_is_written_again_until_the_runs_have_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torl_lab.report.command, "_POLL_SECONDS", 0.01)
    ended, growing = (make_run(tmp_path / name, 1, steps=3) for name in ("ended", "growing"))
    (ended / "summary.json").write_text("{}", encoding="utf-8")
    (growing / "config.toml").write_text("[run]\nsteps = 4\n", encoding="utf-8")
    output = tmp_path / "page.html"

    def wait_for(steps: int) -> str:
        while not output.exists() or content(output)["runs"][1]["steps"] != steps:
            assert not following.done()
            time.sleep(0.01)
        return output.read_text(encoding="ascii")

    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(main, [str(ended), str(growing), "--follow", "--output", str(output)])
        assert 'http-equiv="refresh"' in wait_for(3)
        with (growing / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": 3, "time": 1.0, names.TIME_STEP: 1.0, names.ACCURACY: 0.5}) + "\n")
        wait_for(4)
        (growing / "summary.json").write_text("{}", encoding="utf-8")
        assert following.result() == 0
    assert 'http-equiv="refresh"' not in output.read_text(encoding="ascii")


def test_a_run_may_have_an_equals_sign_in_its_name(tmp_path: Path) -> None:
    run = make_run(tmp_path / "lr=1e-6", 1, steps=3)
    assert main([str(run), f"again={run}", "--output", str(tmp_path / "page.html")]) == 0
    assert [row[0] for row in tables(tmp_path / "page.html")["At the end"]] == ["lr=1e-6", "again"]
    assert main([str(run)]) == 0
    assert (run / "report.html").is_file()


def test_lines_of_a_figure_have_their_labels_and_their_order(page: Path) -> None:
    """From which the page takes the style of each line where the colors are runs."""
    lines = [each for each in figures(page)["Response length"]["lines"] if each["run"] == "calls1"]
    assert [(each["line"], each["label"]) for each in lines] == [
        (0, "response tokens"),
        (1, "sampled tokens"),
        (2, "observed tokens"),
    ]


def test_loss_is_shown_for_fine_tuning_only() -> None:
    tuned = RunRecords("tuned", [{"step": 0, names.LOSS: 2.0}], {})
    trained = RunRecords("trained", [{"step": 0, names.LOSS: 0.1, names.REWARD_MEAN: 0.5}], {})
    assert "Loss" in [panel.title for panel in panels_of([tuned])]
    assert "Loss" not in [panel.title for panel in panels_of([trained, tuned])]


def test_missing_run_and_duplicate_names_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert "metrics.jsonl: cannot be read" in capsys.readouterr().err
    assert main(["a/demo", "b/demo"]) == 2
    assert "write LABEL=b/demo" in capsys.readouterr().err
    assert main(["a", "b", "--smoothing", "0"]) == 2
    assert "--smoothing = 0 must be at least 1 step" in capsys.readouterr().err


def test_a_damaged_configuration_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", 1, steps=3)
    (run / "config.toml").write_text("[rollout\n", encoding="utf-8")
    for words in ([str(run)], [f"one={run}", f"other={run}"]):
        assert main(words) == 2
        assert f"error: {run / 'config.toml'}: not valid TOML" in capsys.readouterr().err


def test_calls_that_change_with_the_step_count_as_the_largest(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 2, steps=3)
    (run / "config.toml").write_text("[rollout]\nmax_tool_calls = [[0, 1], [10, 4], [20, 2]]\n", encoding="utf-8")
    [row] = tables(write_comparison([read_run("run", run)], tmp_path / "page.html"))["At the end"]
    assert row[:3] == ["run", "4", "3"]


def test_steps_of_fine_tuning_are_counted(tmp_path: Path) -> None:
    rows = [{"step": step, "time": 0.0, names.LOSS: 2.0, names.TIME_STEP: 1.0} for step in range(5)]
    tuned = RunRecords("tuned", rows, {"finetune": {}})
    [row] = tables(write_comparison([tuned], tmp_path / "page.html"))["At the end"]
    assert row[:3] == ["tuned", "-", "5"]


def test_changes_have_intervals(page: Path, runs: dict[str, Path]) -> None:
    def accuracies(path: Path) -> dict[str, float]:
        found: dict[str, list[bool]] = {}
        for text in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(text)
            found.setdefault(row["problem"], []).append(row["correct"])
        return {problem: float(np.mean(each)) for problem, each in found.items()}

    for label, directory in runs.items():
        first, last = (accuracies(directory / f"trajectories/evaluation_{step:06d}_easy.jsonl") for step in (0, 20))
        gaps = [last[problem] - first[problem] for problem in first]
        # Of two equal problems, the length of Wilson's interval of 0 of 2 (Newcombe 1998, method 3): 0 to 0.658.
        width = 1.96 * np.std(gaps, ddof=1) / len(gaps) ** 0.5 if len(set(gaps)) > 1 else 0.658
        assert len(gaps) == 2
        [row] = [row for row in tables(page)["Change"] if row[:2] == [label, "easy"]]
        shown = [float(each) for each in row[-1].split(" ± ")]
        assert shown == pytest.approx([100 * np.mean(gaps), 100 * width], abs=0.051)
