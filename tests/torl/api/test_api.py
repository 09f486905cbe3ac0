"""`torl.Policy`, `torl.Run` and the results of calls: one engine for several calls, and errors spelled as in Python."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import torl
from torl.api.event_loop import BackgroundLoop
from torl.base.errors import ConfigError, DataError, EngineError, RecordError
from torl.base.types import Grade, Group, SampledTurn
from torl.components.engine import Engine, EngineOptions, EngineSetup
from torl.run.config.loading import find_config
from torl.run.records.reading import read_trajectories
from torl.run.records.rows import group_records
from torl.run.records.writers import RunWriter

MODEL = "torl:demo/base_model"
ENGINE = f"{__name__}:CountedEngine"
REWARD = f"{__name__}:SeedReward"
SECTIONS: dict[str, Any] = {"engine": ENGINE, "reward": REWARD, "rollout": {"tools": {}, "max_response_tokens": 20}}
events: list[str] = []


class CountedEngine(Engine):
    """An engine that ends every turn at once, and notes when it starts and stops."""

    def __init__(self, setup: EngineSetup, options: EngineOptions) -> None:
        self.stop = setup.stop_token_ids[0]

    async def start(self) -> None:
        if "fail" in events:
            events.remove("fail")
            raise EngineError("no engine")
        events.append("start")

    async def sample(self, *request: Any, **values: Any) -> SampledTurn:
        return SampledTurn((self.stop,), (-0.5,), ((0, 0),), finish_reason="stop", cached_tokens=0)

    async def close(self) -> None:
        events.append("close")


class SeedReward(torl.Reward):
    """A reward for every response."""

    async def grade(self, group: Group) -> list[Grade]:
        return [Grade(1.0, True, None) for _ in group.trajectories]


@pytest.fixture(autouse=True)
def no_events() -> Iterator[None]:
    events.clear()
    yield
    assert events.count("start") == events.count("close") - ("failed" in events)


# --- policies -------------------------------------------------------------------------------------------------------


async def test_a_policy_starts_its_engine_once(tmp_path: Path) -> None:
    """In a running event loop, as in a notebook."""
    with torl.Policy(MODEL, **SECTIONS) as policy:
        assert repr(policy) == f"<torl.Policy {MODEL}: not started>"
        with pytest.raises(
            ConfigError, match=r"evaluation\.rollout\.max_tool_calls must be greater than or equal to 0, got -1"
        ):
            policy.evaluate(["What is 1 + 1?"], max_tool_calls=-1)
        assert events == []
        first = policy.sample(["What is 1 + 1?", "What is 2 + 2?"], samples_per_problem=3, output=tmp_path / "a.jsonl")
        assert events == ["start"]
        second = policy.sample(["What is 3 + 3?"], seed=7)
        evaluation = policy.evaluate([torl.Problem("a", "What is 1 + 1?", "2")], name="sums")
        assert repr(policy) == f"<torl.Policy {MODEL}: running>"
        assert events == ["start"]
    assert events == ["start", "close"]
    assert repr(policy) == f"<torl.Policy {MODEL}: closed>"
    assert [len(group.members) for group in first] == [3, 3]
    assert len(list(read_trajectories(tmp_path / "a.jsonl"))) == 6
    assert [group.prompt.problem.question for group in second] == ["What is 3 + 3?"]
    assert evaluation.groups[0].members[0].trajectory.group_id == "sums-greedy/a"
    assert evaluation.metrics["reward/greedy_accuracy"] == 1.0


def test_a_finished_output_needs_no_engine(tmp_path: Path) -> None:
    output = tmp_path / "a.jsonl"
    torl.sample(MODEL, ["What is 1 + 1?"], output=output, **SECTIONS)
    assert events == ["start", "close"]
    again = torl.sample(MODEL, ["What is 1 + 1?"], output=output, **SECTIONS)
    assert events == ["start", "close"]
    assert len(again) == 1
    with pytest.raises(ConfigError, match="was played with other settings"):
        torl.sample(MODEL, ["What is 2 + 2?"], output=output, **SECTIONS)


def test_a_policy_continues_after_an_engine_that_did_not_start() -> None:
    events.append("fail")
    with torl.Policy(MODEL, **SECTIONS) as policy:
        with pytest.raises(EngineError, match="no engine"):
            policy.sample(["?"])
        assert len(policy.sample(["?"])) == 1
    events.append("failed")


def test_a_policy_is_used_in_a_with_statement() -> None:
    policy = torl.Policy(MODEL, **SECTIONS)
    with pytest.raises(ConfigError, match="use it in a with statement"):
        policy.sample(["?"])
    with policy:
        pass
    with pytest.raises(ConfigError, match="use it in a with statement"):
        policy.sample(["?"])
    policy.close()


def test_a_policy_extends_presets() -> None:
    with torl.Policy(MODEL, extends="demo", **SECTIONS) as policy:
        assert policy.config.evaluation.samples_per_problem == 2
        assert policy.config.model.path == MODEL
        assert policy.config.engine.name == ENGINE


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"rollout": {"max_tool_cals": 3}}, "rollout.max_tool_cals is unknown; did you mean rollout.max_tool_calls?"),
        ({"roolout": {}}, "roolout is unknown; did you mean rollout?"),
        ({"sample_per_problem": 4}, "sample_per_problem is unknown; did you mean samples_per_problem?"),
        ({"n": 4}, "n is unknown"),
        ({"rollout": 3}, "rollout must be a table, got 3"),
        ({"reward": "mth"}, "reward: no reward is called 'mth'; did you mean math?"),
        ({"reward": 3}, "reward: select the reward with a name"),
        ({"extends": "demoo"}, "no preset of that name; did you mean demo?"),
        ({"evaluation": {"sampls": 3}}, "evaluation.sampls is unknown"),
    ],
)
def test_mistakes_are_spelled_as_in_python(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        torl.sample(MODEL, ["?"], **sections)
    assert message in str(error.value)
    assert not re.search(r"--\w+\.", str(error.value))
    assert str(error.value).startswith("torl.sample: ") or "extends" in sections


def test_seed_is_checked_before_the_engine_starts() -> None:
    for call in (lambda: torl.Policy(MODEL, seed=2**31), lambda: torl.sample(MODEL, ["1?"], seed=-1)):
        with pytest.raises(ConfigError, match="seed must be "):
            call()


def test_mistakes_of_train_are_spelled_as_in_python() -> None:
    for call in (lambda: torl.train("demo", {"run.stepz": 3}), lambda: torl.train("demo", run={"stepz": 3})):
        with pytest.raises(ConfigError, match=r"^torl\.train: run\.stepz is unknown; did you mean run\.steps\?$"):
            call()
    with pytest.raises(ConfigError, match="no preset of that name; did you mean demo"):
        torl.train("demoo")
    with pytest.raises(DataError, match=r"problems\[1\] must be a question \(str\) or a torl.Problem, got dict"):
        torl.sample(MODEL, ["What is 1?", {"problem": "What is 2?"}])  # type: ignore[list-item]
    with pytest.raises(DataError, match=r"problems must be a path or a list of str and torl\.Problem, got dict"):
        torl.sample(MODEL, {"problem": "What is 2?"})  # type: ignore[arg-type]
    with pytest.raises(DataError, match="there are no problems"):
        torl.sample(MODEL, [])


def test_a_background_loop_returns_raises_and_closes() -> None:
    async def work(error: Exception | None) -> int:
        if error is not None:
            raise ExceptionGroup("several", [error])
        return 3

    with BackgroundLoop() as loop:
        assert loop.call(work(None)) == 3
        with pytest.raises(DataError, match="broken"):
            loop.call(work(DataError("broken")))
    loop.close()


# --- runs and results -----------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> torl.Run:
    """The records of three steps and an evaluation."""
    directory = tmp_path / "run"
    directory.mkdir()
    shutil.copy(find_config("demo"), directory / "config.toml")
    groups = torl.sample(MODEL, ["What is 1 + 1?"], **SECTIONS)
    with RunWriter(directory) as writer:
        for step in range(3):
            writer.write_metrics(step, {"reward/accuracy": step / 4, "time/step": 1.0})
            writer.write_trajectories(step, group_records(step, groups))
        writer.write_metrics(3, {"evaluation/heldout/reward/accuracy": 0.5})
        writer.write_trajectories(3, group_records(3, groups), evaluation_set="heldout")
    return torl.Run(directory)


def test_a_run_is_read_from_its_directory(run: torl.Run) -> None:
    assert run.config.run.steps == 50
    assert run.metrics["reward/accuracy"] == [0.0, 0.25, 0.5]
    assert run.metrics.curve("evaluation/heldout/reward/accuracy") == ([3], [0.5])
    assert run.metrics[-1]["step"] == 3
    assert len(run.metrics) == len(list(run.metrics)) == 4
    assert run.metrics[:2]["reward/accuracy"] == [0.0, 0.25]
    assert "time/step" in run.metrics.names
    assert [record.step for record in run.trajectories()] == [0, 1, 2]
    assert [record.step for record in run.trajectories(step=1)] == [1]
    assert [record.step for record in run.trajectories(evaluation_set="heldout")] == [3]
    with pytest.raises(KeyError):
        run.metrics["reward/accuracies"]
    with pytest.raises(RecordError, match="no trajectories of step 9 are recorded"):
        run.trajectories(step=9)
    with pytest.raises(RecordError, match=r"no trajectories of 'held' \(sets: heldout\) are recorded"):
        run.trajectories(evaluation_set="held")
    with pytest.raises(RecordError, match="not the directory of a run"):
        torl.Run(run.directory.parent)


def test_results_have_short_texts_and_html(run: torl.Run) -> None:
    groups = torl.sample(MODEL, ["What is 1 < 2?"] * 1, samples_per_problem=2, **SECTIONS)
    evaluation = torl.evaluate(MODEL, [torl.Problem("a", "1 + 1?", "2")], name="sums", **SECTIONS)
    assert repr(groups) == "<1 groups, 2 trajectories, accuracy 1.000>"
    assert repr(run) == f"<Run {run.directory}: 3 steps recorded>"
    assert repr(run.metrics) == "<metrics: 4 rows, 3 names, last step 3>"
    assert repr(evaluation).startswith("<Evaluation of 1 problem: reward/accuracy 1.000, ")
    assert "<td>What is 1 &lt; 2?</td><td>100%</td>" in groups._repr_html_()
    assert "<polyline" in run._repr_html_()
    assert "<td>reward/accuracy</td>" in evaluation._repr_html_()
    with RunWriter(run.directory, resume_step=4) as writer:  # null in the records
        writer.write_metrics(4, {"learner/loss": float("nan"), "reward/accuracy": 0.75})
    assert "<td>0.75</td>" in run.metrics._repr_html_()
    assert "learner/loss" not in run.metrics._repr_html_()
