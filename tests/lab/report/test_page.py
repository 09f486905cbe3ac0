"""The report of a run, made from small records whose numbers are known."""

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import plotly.offline
import pytest

from builders import asked, call, failed, grade, printed, scored, trajectory
from torl.base.errors import RecordError
from torl.base.types import FinishReason, Grade, ScoredGroup, Trajectory
from torl.run.display.changes import accuracy_changes
from torl.run.records import metric_names as names
from torl.run.records.rows import TrajectoryRecord, group_records
from torl.run.records.writers import RunWriter
from torl_lab.report.curves import charts_html
from torl_lab.report.examples import choose_examples, response_segments
from torl_lab.report.page import PLOTLY, write_report
from torl_lab.view.panels import PANELS, RunRecords, Scale, panels_of_run

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


class Page(HTMLParser):
    """Collects tags with their attributes, and the text outside of scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.silent = False
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        self.silent = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.silent = False

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.text += data


def test_it_shows_the_numbers_of_the_first_and_the_last_evaluation(run: Path) -> None:
    page = Page(write_report(run, "It shows X.\n\nIt does not show Y.").read_text(encoding="utf-8"))
    text = re.sub(r"\s+", " ", page.text)
    assert "Accuracy0.2500.750+0.500" in text
    assert "Pass ratio0.120.38+0.25" in text
    assert "models/<b>tiny</b> · rloo · " in text
    assert "It shows X." in text
    assert "It does not show Y." in text
    assert 'path = "models/<b>tiny</b>"' in text
    classes = [attributes.get("class") for _, attributes in page.tags]
    assert classes.count("better") == 2  # accuracy and pass ratio rose
    assert classes.count("worse") == 1  # so did the share of cut responses
    assert "Response tokens" not in text  # never measured


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
    text = Page(write_report(tmp_path).read_text(encoding="utf-8")).text
    assert f"+0.200 ± {change.half_width:.3f}" in text


def test_chart_library_is_the_vendored_one_of_the_version_that_makes_the_figures() -> None:
    [digest] = re.findall(r"`([0-9a-f]{64})`", (PLOTLY.parent / "README.md").read_text(encoding="utf-8"))
    assert hashlib.sha256(PLOTLY.read_bytes()).hexdigest() == digest
    assert f"(basic - minified) v{plotly.offline.get_plotlyjs_version()}\n" in PLOTLY.read_text(encoding="utf-8")[:200]


def test_page_is_loaded_again_until_the_last_step(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[run]\nsteps = 2\n", encoding="utf-8")
    with RunWriter(tmp_path) as writer:
        for step, reloads in enumerate((True, False)):
            writer.write_metrics(step, {names.TIME_STEP: 1.0, names.ACCURACY: 0.5, names.CODE_RATIO: 0.0})
            page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
            refreshes = [each for tag, each in page.tags if tag == "meta" and each.get("http-equiv") == "refresh"]
            assert [each["content"] for each in refreshes] == ["30"] * reloads
            assert ("1 of 2 training steps" in page.text) is reloads
            assert "0 in all steps: Code ratio" in page.text


def test_model_output_stays_text(run: Path) -> None:
    page = Page(write_report(run, HOSTILE).read_text(encoding="utf-8"))
    assert page.text.count(HOSTILE) >= 6  # questions, responses, observations, statement
    tags = [tag for tag, _ in page.tags]
    assert "img" not in tags
    assert "b" not in tags


def test_nothing_is_loaded_from_anywhere(run: Path) -> None:
    page = Page(write_report(run).read_text(encoding="utf-8"))
    for tag, attributes in page.tags:
        assert "src" not in attributes, tag
        assert tag not in ("link", "iframe", "object", "embed", "base")
    policy = next(a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def charts_of(*rows: Mapping[str, Any], window: int = 1) -> dict[str, list[dict[str, Any]]]:
    """The traces of each chart by its title, on the page of a run with these rows."""
    run = RunRecords("run", rows, {})
    found = re.findall(
        r"<h3>(.*?)</h3>.*?newPlot\(\s*\"chart-\d+\",\s*(\[.*?\]),\s*\{",
        charts_html(panels_of_run(run), [run], window),
        re.DOTALL,
    )
    return {title: json.loads(traces) for title, traces in found}


def test_charts_hold_the_records(run: Path) -> None:
    rows = [
        {"step": 0, names.ACCURACY: 0.5, "evaluation/a/reward/accuracy": 0.25, "evaluation/b/reward/accuracy": None},
        {"step": 3, names.ACCURACY: None, names.LOGPROB_GAP_MEAN: 0.0, "evaluation/a/reward/accuracy": 0.75},
    ]
    ((title, traces),) = charts_of(*rows).items()
    assert title == "Accuracy"
    assert [(trace["name"], trace["x"], trace["y"]) for trace in traces] == [
        ("training", [0], [0.5]),
        ("a", [0, 3], [0.25, 0.75]),
    ]
    assert len({trace["line"]["color"] for trace in traces}) == 2


def test_a_curve_of_many_steps_is_a_mean_above_faint_values() -> None:
    rows = [{"step": step, names.REWARD_MEAN: float(step), names.LOGPROB_GAP_MAX: float(step)} for step in range(9)]
    charts = charts_of(*rows, window=5)
    faint, mean = charts["Reward"]
    assert faint["y"] == list(range(9))
    assert mean["y"] == [0, 0.5, 1, 1.5, 2, 3, 4, 5, 6]
    (gaps,) = charts["Log-probability gap"]  # each value matters, and 0 has no logarithm
    assert gaps["y"] == list(range(1, 9))


def test_the_time_of_a_step_is_not_counted_twice() -> None:
    """Playing ahead of the learner takes seconds of earlier steps: the learner's wait belongs to its own step."""
    (stacked,) = [panel for panel in PANELS if panel.scale is Scale.STACKED]
    assert set(stacked.lines.values()) == {names.TIME_WAIT, names.TIME_LEARN, names.TIME_SYNC}
    others = [name for panel in PANELS if panel is not stacked for name in panel.lines.values()]
    assert {names.TIME_ROLLOUT, names.TIME_REWARD} <= set(others)
    row = {"step": 0, names.TIME_WAIT: 1.0, names.TIME_LEARN: 2.0, names.TIME_ROLLOUT: 5.0}
    charts = charts_of(row)
    assert [trace["stackgroup"] for trace in charts[stacked.title]] == ["one", "one"]
    assert not any("stackgroup" in trace for trace in charts["Seconds of the episodes of a step"])


def test_the_parts_of_a_reward_have_a_chart_where_there_are_any() -> None:
    assert not charts_of({"step": 0})
    row = {"step": 0, names.reward_part("answer"): 0.5, names.reward_part("length"): -0.25, names.REWARD_TURNS: 0.1}
    ((title, traces),) = charts_of(row).items()
    assert title == "Parts of the reward"
    assert [(trace["name"], trace["y"]) for trace in traces] == [
        ("answer", [0.5]),
        ("length", [-0.25]),
        ("turn rewards", [0.1]),
    ]


def test_a_run_without_records_is_an_error_and_a_young_run_is_not(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"metrics\.jsonl: cannot be read"):
        write_report(tmp_path)
    with RunWriter(tmp_path):
        pass
    with pytest.raises(RecordError, match=r"config\.toml: cannot be read"):
        write_report(tmp_path)
    (tmp_path / "config.toml").write_text("")
    assert "0 training steps" in Page(write_report(tmp_path).read_text(encoding="utf-8")).text


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
    page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    another = "another sequence of this episode"
    rendered = f"{another}, 1 turnfirst {HOSTILE}{another}, 2 turnssecond third last"
    assert page.text.count(rendered) == 2  # before and after
    assert "img" not in [tag for tag, _ in page.tags]


def test_training_steps_give_the_examples_where_nothing_was_evaluated(tmp_path: Path) -> None:
    with RunWriter(tmp_path) as writer:
        for step, text in ((0, RIGHT), (10, WRONG)):
            writer.write_trajectories(step, records(step, (make("a", "x"), text)))
    assert [example.kind for example in choose_examples(tmp_path)] == ["regressed"]


def test_segments_of_a_response() -> None:
    trajectory = make("a", "Try.\n```python\nx\n```output", "\nNameError: x\n```\n", "So \\boxed{1}, no \\boxed{2}.")
    segments = response_segments(trajectory)
    assert segments == [
        ("sampled", "Try.\n"),
        ("code", "```python\nx\n```output"),
        ("observation", "\nNameError: x\n```\n"),
        ("sampled", "So \\boxed{1}, no "),
        ("answer", "\\boxed{2}"),
        ("sampled", "."),
    ]


def test_invented_result_is_a_separate_segment() -> None:
    """The call ends its turn at the opening of the result, which torl writes; the next one the model wrote itself."""
    text = "again\n```python\ny\n```\n```output\n8\n```\nso \\boxed{8}"
    played = dataclasses.replace(make("a", "```python\nx\n```\n```output", "\n7\n```\n", text), format="torl")
    found = [(kind, part) for kind, part in response_segments(played) if kind in ("invented", "observation", "answer")]
    assert found == [("observation", "\n7\n```\n"), ("invented", "```output\n8\n```"), ("answer", "\\boxed{8}")]


def test_long_response_is_truncated_with_a_note() -> None:
    segments = response_segments(make("a", "x" * 10_000))
    assert segments == [("sampled", "x" * 6000), ("note", "\n[4000 more characters]")]


def test_an_observation_cut_at_the_response_limit_loses_nothing() -> None:
    whole = make("a", "```python\nx\n```output", "\n1234567\n```\n")
    cut = dataclasses.replace(whole, text="```python\nx\n```output\n12")
    assert "".join(text for _, text in response_segments(cut)) == cut.text
