"""Grading again: a reward that reads the metadata of problems says the same as it did of the episode."""

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builders import call, grade, printed, trajectory, write_config
from torl.base.component import RunContext
from torl.base.errors import ComponentError, RecordError
from torl.base.types import Grade, Group, Problem, Prompt, ScoredGroup
from torl.components.data import load_problems
from torl.components.data.layout import Layout
from torl.components.rewards import Reward, make_reward
from torl.components.text.prompts import EncodedPrompts
from torl.components.tools import PythonTool
from torl.rollout.grading import ProblemsById, grade_again, score_group
from torl.run.config import EvaluateModelConfig, TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.display.console import Console
from torl.run.records.rows import TrajectoryRecord, group_records
from torl.run.records.writers import RunWriter
from torl_lab.audit.checks import Check, check_rewards
from torl_lab.audit.one import TrajectoryAudit
from torl_lab.audit.receipt import verify_receipt
from torl_lab.audit.run import verify_run
from torl_lab.evaluation.cells import EvaluationCell, write_or_check_problems
from torl_lab.evaluation.playing import regrade
from torl_lab.evaluation.sets import make_set

CALL = '{"name": "add", "parameters": {"a": 1}}'
REWARD = {"parts": {"answer": "expected_calls", "tag_order": {"weight": 1.0}}}
PROBLEM = Problem("p", "?", CALL, {"response": True})
RECORDED = Problem("p", "?", CALL)


class LevelReward(Reward):
    """Rewards the level of a problem."""

    async def grade(self, group: Group) -> list[Grade]:
        level = float(group.prompt.problem.metadata["level"])
        return [Grade(level, True, None) for _ in group.trajectories]


class BrokenReward(Reward):
    """Fails for every group."""

    async def grade(self, group: Group) -> list[Grade]:
        raise ValueError("broken")


def played(problem: Problem, batch: int | str) -> Group:
    """Two responses with all of ToolRL's tags, of which only a problem with `response` wants the last."""
    text = f"<think>\nI add.\n</think>\n<tool_call>\n{CALL}\n</tool_call>\n<response>Done.</response>"
    prompt = Prompt(problem, (1, 2, 3))
    members = (trajectory(text, prompt=prompt, group=f"{batch}/{problem.id}", sample=sample) for sample in range(2))
    return Group(prompt, tuple(members), 160)


async def graded(problem: Problem, batch: int | str = 0) -> ScoredGroup:
    """The group as a run grades it, with the metadata of its problem."""
    reward = make_reward(load_config(TrainConfig, find_config("demo"), {"reward": REWARD}).reward)
    return await score_group(reward, played(problem, batch))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two problems, of which the first wants a response in words."""
    path = tmp_path / "problems.jsonl"
    rows = [{"id": name, "problem": f"{name}?", "answer": CALL, "response": name == "p0"} for name in ("p0", "p1")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# --- one group ----------------------------------------------------------------------------------------------------


async def test_a_group_is_graded_with_the_metadata_of_its_problem() -> None:
    again = await grade_again(LevelReward(), played(RECORDED, 0), {"p": Problem("p", "?", CALL, {"level": 3})})
    assert again is not None
    assert [member.grade.reward for member in again.members] == [3.0, 3.0]


async def test_a_group_has_no_grade_if_unknown_metadata_are_read() -> None:
    assert await grade_again(LevelReward(), played(RECORDED, 0), {}) is None
    reward = make_reward(load_config(TrainConfig, find_config("demo"), {"reward": REWARD}).reward)
    assert await grade_again(reward, played(RECORDED, 0), {}) is None  # it has a default
    with pytest.raises(ComponentError, match="broken"):
        await grade_again(BrokenReward(), played(RECORDED, 0), {})


async def test_grades_of_unknown_metadata_are_no_mismatches() -> None:
    records = [TrajectoryRecord(0, each, grade(reward=3.0)) for each in played(RECORDED, 0).trajectories]
    check = Check("rewards")
    await check_rewards(check, records, LevelReward(), 160, {})
    assert (check.compared, check.wrong) == (0, 0)
    assert "metadata of problems that cannot be found" in check.note
    for level, wrong in ((3, 0), (2, 2)):
        check = Check("rewards")
        await check_rewards(check, records, LevelReward(), 160, {"p": Problem("p", "?", CALL, {"level": level})})
        assert (check.compared, check.wrong) == (2, wrong)


def test_problems_are_found_by_their_id_question_and_answer(source: Path) -> None:
    problems = ProblemsById(make_set(str(source), Layout()))
    recorded = [Problem("p0", "p0?", CALL), Problem("p1", "another?", CALL), Problem("p9", "p9?", CALL)]
    assert {name: each.metadata for name, each in problems.find(recorded).items()} == {"p0": {"response": True}}
    missing = ProblemsById(make_set(str(source.with_name("missing.jsonl")), Layout()))
    assert missing.find(recorded) == {}
    assert missing.reason.startswith("cannot be read: ")


# --- evaluations --------------------------------------------------------------------------------------------------


@pytest.fixture
def console() -> Iterator[Console]:
    with Console() as console:
        yield console


async def evaluated(directory: Path, source: Path) -> EvaluationCell:
    """A cell as `torl evaluate` writes it."""
    groups = [await graded(problem, "set-greedy") for problem in load_problems(str(source))]
    prompts = EncodedPrompts(tuple(group.prompt for group in groups), ())
    write_or_check_problems(directory, "set", prompts, make_set(str(source), Layout()))
    cell = EvaluationCell(directory, "set", 0, "greedy")
    for group in groups:
        cell.file.append(group)
    return cell


async def test_an_evaluation_keeps_its_grades_when_it_is_graded_again(
    source: Path, tmp_path: Path, console: Console
) -> None:
    config = load_config(EvaluateModelConfig, None, {"model": {"path": "model"}, "reward": REWARD})
    cell = await evaluated(tmp_path / "model", source)
    before = [[member.grade.reward for member in group.members] for group in cell.file.read()]
    assert before == [[-2.0, -2.0], [-3.0, -3.0]]
    await regrade(tmp_path / "model", config, console)
    assert [[member.grade.reward for member in group.members] for group in cell.file.read()] == before


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        ("problems", "the source of the set cannot be read: "),
        ("", "contains other problems now"),
        ("source.json", "their source is unknown"),
    ],
)
async def test_an_evaluation_without_its_problems_is_not_graded_again(
    source: Path, tmp_path: Path, console: Console, lost: str, reason: str
) -> None:
    config = load_config(EvaluateModelConfig, None, {"model": {"path": "model"}, "reward": REWARD})
    cell = await evaluated(tmp_path / "model", source)
    before = cell.file.path.read_bytes()
    if lost:
        (source if lost == "problems" else tmp_path / "model" / "set" / lost).unlink()
    else:
        source.write_text(source.read_text().replace("p0?", "another?"))
    with pytest.raises(RecordError, match=f"the reward reads the metadata of the problem 'p0', but .*{reason}"):
        await regrade(tmp_path / "model", config, console)
    assert cell.file.path.read_bytes() == before
    await regrade(tmp_path / "model", config.model_copy(update={"reward": _answer_only().reward}), console)


def _answer_only() -> EvaluateModelConfig:
    return load_config(EvaluateModelConfig, None, {"model": {"path": "model"}, "reward": {"parts": {"answer": "math"}}})


# --- runs ---------------------------------------------------------------------------------------------------------


async def write_run(directory: Path, source: Path) -> Path:
    """A run with a step and an evaluation, whose grades are right."""
    overrides: dict[str, Any] = {
        "data.train": str(source),
        "data.evaluation": {"heldout": str(source)},
        "reward": REWARD,
        "rollout.tools": {},
        "rollout.prompts_per_step": 2,
        "rollout.samples_per_prompt": 2,
        "run.directory": str(directory),
        "run.steps": 1,
    }
    config = load_config(TrainConfig, find_config("demo"), overrides)
    directory.mkdir()
    write_config(directory, config)
    problems = load_problems(str(source))
    with RunWriter(directory) as writer:
        for batch, name in ((0, None), ("heldout-sampled", "heldout")):
            records = group_records(0, [await graded(problem, batch) for problem in problems])
            writer.write_trajectories(0, records, evaluation_set=name)
        writer.write_metrics(0, {"time/step": 1.0})
    return directory


async def test_verify_grades_with_the_metadata_of_problems(source: Path, tmp_path: Path) -> None:
    run = await write_run(tmp_path / "run", source)
    rewards = (await verify_run(run, 0))["rewards"]
    assert (rewards.compared, rewards.examples) == (8, [])
    source.unlink()
    rewards = (await verify_run(run, 0))["rewards"]
    assert (rewards.compared, rewards.examples) == (0, [])
    assert "metadata of problems that cannot be found" in rewards.note


async def test_a_receipt_grades_with_the_metadata_of_problems(source: Path, tmp_path: Path) -> None:
    run = await write_run(tmp_path / "run", source)
    audit = await verify_receipt(run, share=1.0)
    assert (audit.graded, audit.examples) == (4, [])
    source.unlink()
    audit = await verify_receipt(run, share=1.0)
    assert (audit.graded, audit.examples) == (0, [])
    assert "metadata of problems that cannot be found" in audit.note


async def write_steps(directory: Path, steps: int, *, tokens: int = 18) -> Path:
    """A run whose token limit is 20 in the first step and 40 later, and whose reward reads the limit."""
    overrides: dict[str, Any] = {
        "reward": {"parts": {"answer": "math", "overlong": {"buffer": 10}}},
        "rollout.tools": {},
        "rollout.max_response_tokens": [[0, 20], [1, 40]],
    }
    config = load_config(TrainConfig, find_config("demo"), overrides)
    directory.mkdir()
    write_config(directory, config)
    reward = make_reward(config.reward)
    await reward.start(RunContext(directory=directory))
    with RunWriter(directory) as writer:
        for step in range(steps):
            prompt = Prompt(Problem("p", "1 + 1?", "2"), (1, 2, 3))
            made = [
                trajectory("a", "b", prompt=prompt, group=f"{step}/p", sample=sample, turn_tokens=tokens // 2)
                for sample in range(2)
            ]
            limit = config.at_step(step).rollout.max_response_tokens
            records = group_records(step, [await score_group(reward, Group(prompt, tuple(made), limit))])
            writer.write_trajectories(step, records)
            writer.write_metrics(step, {"time/step": 1.0})
    await reward.close()
    return directory


async def test_a_receipt_grades_with_the_token_limit_of_the_step(tmp_path: Path) -> None:
    run = await write_steps(tmp_path / "run", 2)
    rows = [
        json.loads((run / "trajectories" / f"step_00000{step}.jsonl").read_text().split("\n")[0]) for step in (0, 1)
    ]
    assert rows[0]["reward"] != rows[1]["reward"]
    audit = await verify_receipt(run, share=1.0)
    assert (audit.graded, audit.examples) == (4, [])
    assert audit.note.count("calls of 'python' do not run in the sandbox") == 1
    assert audit.calls == (4, 0)


async def test_a_receipt_runs_calls_again_in_one_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in the state that the calls before it left; the second sample's output is not what its code prints."""
    overrides: dict[str, Any] = {
        "reward": {"parts": {"answer": "math"}},
        "rollout.tools.python.interpreter_state": "episode",
    }
    config = load_config(TrainConfig, find_config("demo"), overrides)
    run = tmp_path / "run"
    run.mkdir()
    write_config(run, config)
    prompt = Prompt(Problem("p", "1 + 1?", "2"), (1, 2, 3))
    made = [
        trajectory(
            "a", "b", "c", prompt=prompt, sample=sample, calls=[call("x = 3", printed("")), call("print(x)", seen)]
        )
        for sample, seen in enumerate([printed("3\n"), printed("4\n")])
    ]
    reward = make_reward(config.reward)
    await reward.start(RunContext(directory=run))
    with RunWriter(run) as writer:
        writer.write_trajectories(0, group_records(0, [await score_group(reward, Group(prompt, tuple(made), 160))]))
        writer.write_metrics(0, {"time/step": 1.0})
    await reward.close()
    starts, start = list[object](), PythonTool.start
    monkeypatch.setattr(PythonTool, "start", lambda self, context: (starts.append(self), start(self, context))[1])
    audit = await verify_receipt(run, share=1.0)
    assert audit.calls == (4, 4)
    assert audit.examples == ["step 0, 0/p, sample 1, call 1: another text when run again"]
    assert len(starts) == 1


async def test_a_receipt_is_checked_without_all_trajectories_in_memory(tmp_path: Path) -> None:
    short, run = await write_steps(tmp_path / "short", 1), await write_steps(tmp_path / "run", 60, tokens=4000)
    step = (run / "trajectories" / "step_000000.jsonl").stat().st_size
    await verify_receipt(short)  # imports the modules
    tracemalloc.start()
    try:
        audit = await verify_receipt(run)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (audit.graded, audit.examples) == (2, [])
    assert peak < 60 * step  # the text of all files; the numbers in it take several times as much


@pytest.mark.parametrize("name", ["step_000000", "evaluation_000000_heldout"])
async def test_the_viewer_grades_with_the_metadata_of_problems(name: str, source: Path, tmp_path: Path) -> None:
    run = await write_run(tmp_path / "run", source)
    kept = source.read_bytes()
    source.unlink()
    async with TrajectoryAudit(run) as audit:
        for present in (False, True):
            if present:
                source.write_bytes(kept)
            checks = await audit.verify(run / "trajectories" / f"{name}.jsonl", 0)
            rewards = next(check for check in checks if check.name == "rewards")
            assert (rewards.compared, rewards.examples) == (int(present), [])
            assert present or "metadata of problems that cannot be found" in rewards.note
