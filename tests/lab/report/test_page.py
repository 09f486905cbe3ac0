"""The report of a run, made from small records whose numbers are known."""

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from builders import asked, call, failed, grade, printed, scored, trajectory
from saved_pages import content, tables
from torl.base.errors import RecordError
from torl.base.types import FinishReason, Grade, ScoredGroup, Trajectory
from torl.run.display.series import accuracy_changes
from torl.run.records import metric_names as names
from torl.run.records.rows import TrajectoryRecord, encode_trajectory, group_records
from torl.run.records.writers import RunWriter
from torl_lab.report.figures import choose_examples
from torl_lab.report.page import write_report
from torl_lab.view.detail import segments
from torl_lab.view.overview import curves
from torl_lab.view.panels import PANELS, RunRecords, Scale

HOSTILE = '<script>alert("1")</script><img src=x onerror=alert(2)>'
RIGHT, WRONG = grade(answer="2"), grade(False, -1.0, answer="3", failure="timeout")


def make(problem: str, before: str, observation: str | None = None, after: str = "") -> Trajectory:
    prompt = asked(problem, "2", question=f"What is {problem}? {HOSTILE}")
    if observation is None:
        return trajectory(before + after, prompt=prompt, finish=FinishReason.LENGTH)
    calls = [call("x\n", failed("NameError: x"), observation=observation)]
    return trajectory(before, after, prompt=prompt, calls=calls, finish=FinishReason.LENGTH)


def records(step: int, *pairs: tuple[Trajectory, Grade]) -> list[TrajectoryRecord]:
    return [TrajectoryRecord(step, *pair) for pair in pairs]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text(
        '[model]\npath = "models/<b>tiny</b>"\n[algorithm.estimator]\nname = "rloo"\n', encoding="utf-8"
    )
    with RunWriter(tmp_path) as writer:
        for step, accuracy in ((0, 0.25), (2, 0.75)):
            evaluated = {names.ACCURACY: accuracy, names.PASS_RATIO: accuracy / 2, names.TRUNCATED: accuracy}
            writer.write_metrics(step, names.evaluation_metrics("held_out", evaluated))
        writer.write_metrics(0, {names.ACCURACY: 0.3, names.ENTROPY: 0.7})
        writer.write_metrics(1, {names.ACCURACY: 0.4, names.ENTROPY: 0.6})
        for step, after in ((0, WRONG), (2, RIGHT)):
            learned = make("learned", f"{HOSTILE} ```python\nx\n```output", f"\n{HOSTILE}\n```\n", r"so \boxed{2}")
            pairs = ((learned, after), (make("failed", HOSTILE), WRONG))
            writer.write_trajectories(step, records(step, *pairs), evaluation_set="held_out")
    return tmp_path


def test_it_shows_the_numbers_of_the_first_and_the_last_evaluation(run: Path) -> None:
    page = write_report(run, "It shows X.\n\nIt does not show Y.")
    assert tables(page)["Before and after, on held_out"] == [
        ["Accuracy", "0.250", "0.750", ["+0.500", "better"]],
        ["Pass ratio", "0.12", "0.38", ["+0.25", "better"]],
        ["Truncated responses", "0.25", "0.75", ["+0.50", "worse"]],  # others were never measured
    ]
    shown = content(page)
    assert [(each["model"], each["method"]) for each in shown["runs"]] == [("models/<b>tiny</b>", "rloo")]
    assert shown["report"]["statement"] == ["It shows X.", "It does not show Y."]
    assert 'path = "models/<b>tiny</b>"' in shown["settings"]["texts"][0]


def test_change_of_an_accuracy_has_its_interval_over_problems(tmp_path: Path) -> None:
    """Two responses to each of five problems, before and after: the interval of the paired difference by NumPy."""
    before, after = [[1, 0], [0, 0], [1, 1], [0, 0], [0, 1]], [[1, 1], [1, 0], [1, 1], [0, 1], [0, 0]]
    means = [[sum(pair) / 2 for pair in of] for of in (before, after)]
    (tmp_path / "config.toml").write_text("[run]\nsteps = 9\n", encoding="utf-8")
    with RunWriter(tmp_path) as writer:
        for step, of, accuracy in ((0, before, means[0]), (4, after, means[1])):
            writer.write_metrics(step, names.evaluation_metrics("set", {names.ACCURACY: sum(accuracy) / 5}))
            pairs = [(make(f"p{problem}", "x"), grade(bool(each))) for problem, pair in enumerate(of) for each in pair]
            writer.write_trajectories(step, records(step, *pairs), evaluation_set="set")
    differences = [late - early for early, late in zip(*means, strict=True)]
    half_width = NormalDist().inv_cdf(0.975) * np.std(differences, ddof=1) / math.sqrt(len(differences))
    change = accuracy_changes(tmp_path)["set"]
    assert change.after - change.before == pytest.approx(sum(differences) / 5)
    assert change.half_width == pytest.approx(half_width, rel=1e-4)
    [row] = tables(write_report(tmp_path))["Before and after, on set"]
    assert row == ["Accuracy", "0.400", "0.600", [f"+0.200 ± {change.half_width:.3f}", "better"]]


def test_page_is_loaded_again_until_the_last_step(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[run]\nsteps = 2\n", encoding="utf-8")
    with RunWriter(tmp_path) as writer:
        for step, reloads in enumerate((True, False)):
            writer.write_metrics(step, {names.TIME_STEP: 1.0, names.ACCURACY: 0.5, names.CODE_RATIO: 0.0})
            page = write_report(tmp_path)
            assert re.findall('"refresh" content="(.*?)"', page.read_text(encoding="ascii")) == ["30"] * reloads
            [shown] = content(page)["runs"]
            assert (shown["steps"], shown["planned"], shown["finished"]) == (step + 1, 2, not reloads)


def test_model_output_is_only_in_the_recorded_data(run: Path) -> None:
    text = write_report(run, HOSTILE).read_text(encoding="ascii")
    before, data, after = re.split('(id="recorded">.*?</script>)', text)
    assert "alert(" not in before + after
    assert "<img" not in text
    assert data.count("<") == 1  # the end of the element
    assert data.count("\\u003cimg src=x onerror=alert(2)>") >= 6  # questions, responses, observations, statement


def test_nothing_is_loaded_from_anywhere(run: Path) -> None:
    text = write_report(run).read_text(encoding="ascii")
    assert not re.findall("<(iframe|object|embed|base) |<script[^>]* src=|<link(?![^>]*data:)", text)
    [policy] = re.findall('Content-Security-Policy" content="(.*?)"', text)
    assert policy.startswith("default-src 'none'; script-src 'nonce-")
    [imports] = re.findall('<script type="importmap"[^>]*>(.*?)</script>', text)
    assert {address.partition(",")[0] for address in json.loads(imports)["imports"].values()} == {
        "data:text/javascript;base64"
    }


def charts_of(*rows: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The figures of a run with these rows, by their titles."""
    return {figure["title"]: figure for figure in curves([RunRecords("run", rows, {})])}


def points(figure: Mapping[str, Any]) -> list[tuple[str, Sequence[int], Sequence[float]]]:
    return [(each["label"], each["steps"], each["values"]) for each in figure["lines"]]


def test_charts_hold_the_records() -> None:
    rows = [
        {"step": 0, names.ACCURACY: 0.5, "evaluation/a/reward/accuracy": 0.25, "evaluation/b/reward/accuracy": None},
        {"step": 3, names.ACCURACY: None, names.LOGPROB_GAP_MEAN: 0.0, "evaluation/a/reward/accuracy": 0.75},
    ]
    charts = charts_of(*rows)
    assert points(charts["Accuracy"]) == [("training", [0], [0.5]), ("a", [0, 3], [0.25, 0.75])]
    assert [line["line"] for line in charts["Accuracy"]["lines"]] == [0, 1]  # which have different colors
    assert [line["evaluated"] for line in charts["Accuracy"]["lines"]] == [False, True]
    assert charts.keys() == {"Accuracy", "Log-probability gap"}


def test_the_time_of_a_step_is_not_counted_twice() -> None:
    """Playing ahead of the learner takes seconds of earlier steps: the learner's wait belongs to its own step."""
    (stacked,) = [panel for panel in PANELS if panel.scale is Scale.STACKED]
    assert set(stacked.lines.values()) == {names.TIME_WAIT, names.TIME_LEARN, names.TIME_SYNC}
    others = [name for panel in PANELS if panel is not stacked for name in panel.lines.values()]
    assert {names.TIME_ROLLOUT, names.TIME_REWARD} <= set(others)
    row = {"step": 0, names.TIME_WAIT: 1.0, names.TIME_LEARN: 2.0, names.TIME_ROLLOUT: 5.0}
    charts = charts_of(row)
    assert (charts[stacked.title]["scale"], len(charts[stacked.title]["lines"])) == ("stacked", 2)
    assert charts["Seconds of the episodes of a step"]["scale"] == "number"


def test_the_parts_of_a_reward_have_a_chart_where_there_are_any() -> None:
    assert not charts_of({"step": 0})
    row = {"step": 0, names.reward_part("answer"): 0.5, names.reward_part("length"): -0.25, names.REWARD_TURNS: 0.1}
    ((title, figure),) = charts_of(row).items()
    assert title == "Parts of the reward"
    assert points(figure) == [("answer", [0], [0.5]), ("length", [0], [-0.25]), ("turn rewards", [0], [0.1])]


def test_a_run_without_records_is_an_error_and_a_young_run_is_not(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"metrics\.jsonl: cannot be read"):
        write_report(tmp_path)
    with RunWriter(tmp_path):
        pass
    with pytest.raises(RecordError, match=r"config\.toml: cannot be read"):
        write_report(tmp_path)
    (tmp_path / "config.toml").write_text("")
    assert [each["steps"] for each in content(write_report(tmp_path))["runs"]] == [0]


def test_examples_are_one_of_each_kind(run: Path) -> None:
    examples = choose_examples(run)
    assert [example.kind for example in examples] == ["fixed", "failed"]
    assert [(e.before.step, e.after.step) for e in examples] == [(0, 2), (0, 2)]


def test_examples_of_a_recovered_error_and_a_corrected_answer(tmp_path: Path) -> None:
    block = "```python\nx\n```output"
    error, well = call("x\n", failed()), call("x\n", printed("2"))
    recovered = trajectory(block, block, r"\boxed{2}", prompt=asked("recovered", "2"), calls=[error, well])
    corrected = trajectory("\\boxed{3}\n" + block, r"\boxed{2}", prompt=asked("corrected", "2"), calls=[well])
    agreed = trajectory("\\boxed{2}\n" + block, r"\boxed{2}", prompt=asked("agreed", "2"), calls=[well])
    with RunWriter(tmp_path) as writer:
        for step in (0, 10):
            pairs = ((agreed, RIGHT), (recovered, WRONG if step == 0 else RIGHT), (corrected, RIGHT))
            writer.write_trajectories(step, records(step, *pairs))
    rendered = {example.kind: example.after.trajectory.prompt.problem.id for example in choose_examples(tmp_path)}
    assert rendered["recovered"] == "recovered"
    assert rendered["corrected"] == "corrected"
    with RunWriter(tmp_path / "wrong") as writer:
        for step in (0, 10):
            writer.write_trajectories(step, records(step, (recovered, WRONG), (corrected, WRONG)))
    assert [example.kind for example in choose_examples(tmp_path / "wrong")] == ["failed"]


def test_an_example_shows_all_sequences_of_its_episode_in_their_order(tmp_path: Path) -> None:
    """An agent program may begin anew: only the last sequence represents the episode in its group."""
    first, second = (
        trajectory(*texts, prompt=asked("a"), calls=[]) for texts in ((f"first {HOSTILE}",), ("second ", "third "))
    )
    episode = dataclasses.replace(trajectory("last", prompt=asked("a")), branches=(first, second))
    (tmp_path / "config.toml").write_text("")
    with RunWriter(tmp_path) as writer:
        for step in (0, 1):
            writer.write_trajectories(step, group_records(step, [ScoredGroup(asked("a"), (scored(episode),))]))
    [example] = content(write_report(tmp_path))["report"]["examples"]
    for response in example["responses"]:  # before and after
        found = [
            "".join(part["text"] for segment in each for part in segment["parts"]) for each in response["sequences"]
        ]
        assert found == [f"first {HOSTILE}", "second third ", "last"]


def test_training_steps_give_the_examples_where_nothing_was_evaluated(tmp_path: Path) -> None:
    with RunWriter(tmp_path) as writer:
        for step, text in ((0, RIGHT), (10, WRONG)):
            writer.write_trajectories(step, records(step, (make("a", "x"), text)))
    assert [example.kind for example in choose_examples(tmp_path)] == ["regressed"]


def parts_of(played: Trajectory) -> list[tuple[str, str]]:
    """The parts of the turns, and the observations."""
    found = segments(encode_trajectory(TrajectoryRecord(0, played, RIGHT)))
    return [(part["kind"], part["text"]) for each in found for part in each.get("parts", [each])]


def test_segments_of_a_response() -> None:
    played = make("a", "Try.\n```python\nx\n```output", "\nNameError: x\n```\n", "So \\boxed{1}, no \\boxed{2}.")
    assert parts_of(played) == [
        ("text", "Try.\n```python\n"),
        ("code", "x\n"),
        ("text", "```output"),
        ("observation", "\nNameError: x\n```\n"),
        ("text", "So \\boxed{1}, no "),
        ("answer", "\\boxed{2}"),
        ("text", "."),
    ]


def test_invented_result_is_a_separate_segment() -> None:
    """The call ends its turn at the opening of the result, which torl writes; the next one the model wrote itself."""
    text = "again\n```python\ny\n```\n```output\n8\n```\nso \\boxed{8}"
    played = dataclasses.replace(make("a", "```python\nx\n```\n```output", "\n7\n```\n", text), format="torl")
    found = [(kind, part) for kind, part in parts_of(played) if kind in ("invented", "observation", "answer")]
    assert found == [("observation", "\n7\n```\n"), ("invented", "```output\n8\n```"), ("answer", "\\boxed{8}")]


def test_long_response_is_truncated_with_a_note() -> None:
    assert parts_of(make("a", "x" * 210_000)) == [("text", "x" * 200_000 + "\n[10000 more characters]")]


def test_an_observation_cut_at_the_response_limit_is_shown_as_it_was() -> None:
    whole = make("a", "```python\nx\n```output", "\n1234567\n```\n")
    cut = dataclasses.replace(whole, text="```python\nx\n```output\n12")
    assert ("observation", "\n1234567\n```\n") in parts_of(cut)
