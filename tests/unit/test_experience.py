"""Dynamic sampling: a step plays until its batch is full, with a bound, and its selection is written down."""

import asyncio
import io
import json
import re
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from scripted_engine import ScriptedEngine, ScriptedInterpreter
from tokenizers_for_tests import byte_level_bpe
from torl.config import (
    AlgorithmConfig,
    DataConfig,
    ModelConfig,
    RewardConfig,
    RolloutConfig,
    RunConfig,
    SelectionConfig,
    TrainConfig,
)
from torl.data.sampler import PromptSampler
from torl.errors import EngineError, SandboxError
from torl.experience import Experience, PlayedStep
from torl.metrics.console import Console
from torl.reward.grader import GraderPool
from torl.rollout.episode import EpisodePlayer, EpisodeSettings
from torl.rollout.formats import ToRLFormat
from torl.rollout.tokenizer import TextEncoder
from torl.rollout.vocabulary import build_vocabulary
from torl.types import FinishReason, Outcome, OutcomeStatus, Problem, Prompt

TOKENIZER = byte_level_bpe()
VOCABULARY = build_vocabulary(TOKENIZER)
ENCODER = TextEncoder(TOKENIZER, VOCABULARY)


class IdleSandbox:
    """Nothing here calls the tool; its self-test has tests of its own."""

    def self_test(self) -> None: ...


def make_experience(
    signal: Any,
    problems: int,
    tmp_path: Path,
    grader: GraderPool,
    steps: int = 1,
    staleness: int = 0,
    normalize_rewards: bool = False,
    **selection: Any,
) -> tuple[Experience, io.StringIO]:
    """The model solves half of the samples of the problems for which `signal(number)` holds, of others none."""

    def script(request_id: str) -> list[int]:
        number, sample = re.fullmatch(r"\d+/p(\d+)/(\d+)/0", request_id).groups()  # type: ignore[union-attr]
        solved = signal(int(number)) and int(sample) % 2
        return ENCODER.encode("\\boxed{1}" if solved else "\\boxed{2}" + " and so on" * 8)

    config = TrainConfig(
        run=RunConfig(directory=tmp_path, steps=steps),
        model=ModelConfig(path=""),
        data=DataConfig(train=""),
        rollout=RolloutConfig(
            prompts_per_step=4, samples_per_prompt=2, max_response_tokens=40, max_staleness=staleness
        ),
        algorithm=AlgorithmConfig(importance_correction="tis", normalize_rewards=normalize_rewards),
        reward=RewardConfig(overlong_buffer=selection.pop("overlong_buffer", 0)),
        selection=SelectionConfig(**selection),
    )
    prompts = [Prompt(Problem(f"p{number}", "", "1"), (5, 6)) for number in range(problems)]
    engine = ScriptedEngine(script, version=lambda _: experience._version)
    settings = EpisodeSettings.from_config(config.rollout, 0)
    player = EpisodePlayer(engine, ScriptedInterpreter(), VOCABULARY, ENCODER, ToRLFormat(1), settings)
    said = io.StringIO()
    sandbox: Any = IdleSandbox()
    experience = Experience(config, PromptSampler(prompts, 0), player, grader, sandbox, Console(said))
    return experience, said


@pytest.fixture(scope="module")
async def grader() -> Any:
    async with GraderPool(1, 2.0) as pool:
        yield pool


async def test_without_it_a_step_plays_its_prompts_once(grader: GraderPool, tmp_path: Path) -> None:
    experience, _ = make_experience(lambda number: number % 2, 20, tmp_path, grader, drop_uniform_groups=True)
    played = await experience.play(0)
    assert len(played.trajectories) == 8
    groups = {trajectory.group for trajectory in played.trajectories}
    signal = {group for group in groups if int(group.removeprefix("0/p")) % 2}
    assert {played.trajectories[index].group for index in played.kept} == signal
    assert played.counts["selection/uniform_groups"] == 4 - len(signal)
    assert played.counts["selection/rounds"] == 1
    assert played.counts["selection/missing_groups"] == 0


async def test_rounds_go_on_until_the_batch_is_full(grader: GraderPool, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"accuracy_window": (0.0, 1.0), "dynamic_sampling": True}
    experience, said = make_experience(lambda number: number % 5 == 0, 200, tmp_path, grader, **settings)
    played = await experience.play(0)
    trajectories, rewards, groups = played.batch()
    assert len(trajectories) == 8
    assert len(set(groups)) == 4
    assert all(int(group.removeprefix("0/p")) % 5 == 0 for group in groups)
    assert sorted(rewards) == [-1.0] * 4 + [1.0] * 4
    assert played.counts["selection/rounds"] > 1
    assert played.counts["selection/missing_groups"] == 0
    total = len({trajectory.group for trajectory in played.trajectories})
    assert total == 4 + played.counts["selection/groups_outside_window"] + played.counts["selection/surplus_groups"]
    # The groups that were sampled first: those that are short do not push in.
    in_order = [trajectory.group for trajectory in played.trajectories]
    first = [group for group in dict.fromkeys(in_order) if int(group.removeprefix("0/p")) % 5 == 0][:4]
    assert list(dict.fromkeys(groups)) == first
    assert "kept after" not in said.getvalue()


async def test_what_a_round_keeps_beyond_the_batch_is_not_learned_from(grader: GraderPool, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"drop_uniform_groups": True, "dynamic_sampling": True}
    # Of the first round's four problems only the last has a signal; of the twelve of the second round all have.
    order = [problem.problem.id for problem in make_experience(bool, 40, tmp_path, grader)[0]._sampler.take(16)]
    without = {int(name[1:]) for name in order[:3]}
    experience, _ = make_experience(lambda number: number not in without, 40, tmp_path, grader, **settings)
    played = await experience.play(0)
    assert played.counts["selection/rounds"] == 2
    assert played.counts["selection/surplus_groups"] == 13 - 4
    assert list(dict.fromkeys(played.batch()[2])) == [f"0/{name}" for name in order[3:7]]


async def test_rounds_have_an_end(grader: GraderPool, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"drop_uniform_groups": True, "dynamic_sampling": True, "max_rounds": 3}
    experience, said = make_experience(lambda number: False, 200, tmp_path, grader, **settings)
    played = await experience.play(0)
    assert played.kept == []
    assert played.counts["selection/rounds"] == 3
    assert played.counts["selection/missing_groups"] == 4
    assert "step 1: 0 of 4 groups kept after 3 rounds" in said.getvalue()


async def test_no_problem_is_played_twice_in_a_step(grader: GraderPool, tmp_path: Path) -> None:
    """Also where there are fewer problems than the rounds ask for, and an epoch ends in the middle of the step."""
    settings: dict[str, Any] = {"drop_uniform_groups": True, "dynamic_sampling": True, "max_rounds": 50}
    experience, _ = make_experience(lambda number: number == 3, 7, tmp_path, grader, **settings)
    played = await experience.play(0)
    groups = [trajectory.group for trajectory in played.trajectories]
    assert len(groups) == 2 * len(set(groups)) == 14
    assert {groups[index] for index in played.kept} == {"0/p3"}
    assert played.counts["selection/missing_groups"] == 3


async def test_long_responses_are_punished_before_anything_is_selected(grader: GraderPool, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"drop_uniform_groups": True, "overlong_buffer": 39}
    experience, _ = make_experience(lambda number: True, 4, tmp_path, grader, **settings)
    played = await experience.play(0)
    for trajectory, grade, reward in zip(played.trajectories, played.grades, played.rewards, strict=True):
        punishment = min(1, max(0, (len(trajectory) - 1) / 39))
        assert reward == grade.reward == pytest.approx((1 if grade.correct else -1) - punishment)
        assert punishment > 0


async def test_rewards_of_the_batch_are_normalized_where_that_is_asked_for(grader: GraderPool, tmp_path: Path) -> None:
    experience, _ = make_experience(lambda number: True, 4, tmp_path, grader, normalize_rewards=True)
    played = await experience.play(0)
    assert sorted(set(played.rewards)) == [-1.0, 1.0]  # as graded
    deviation = (8 / 7) ** 0.5  # of four times 1 and four times -1
    assert sorted(played.batch()[1]) == pytest.approx([-1 / deviation] * 4 + [1 / deviation] * 4, rel=1e-5)
    plain, _ = make_experience(lambda number: True, 4, tmp_path, grader)
    assert sorted((await plain.play(0)).batch()[1]) == [-1.0] * 4 + [1.0] * 4


async def test_shuffled_rewards_are_those_of_the_step_in_an_order_of_its_own(
    grader: GraderPool, tmp_path: Path
) -> None:
    experience, _ = make_experience(lambda number: True, 40, tmp_path, grader, steps=6)
    object.__setattr__(experience._config.control, "shuffle_rewards", True)
    steps: list[PlayedStep] = []
    for step in range(6):
        experience._version = step
        steps.append(await experience.play(step))
    for played in steps:
        assert sorted(played.rewards) == sorted(grade.reward for grade in played.grades)
    assert len({tuple(played.rewards) for played in steps}) > 3


def crashing(share: int) -> Any:
    """An interpreter of whose runs `share` in sixteen crash their worker."""
    calls = 0

    async def run_async(code: str, *, seed: int = 0) -> Outcome:
        nonlocal calls
        calls += 1
        status = OutcomeStatus.CRASH if calls % 16 < share else OutcomeStatus.OK
        return Outcome(status, "1\n", "", None, None, None, 0.0, 0.0, 0)

    interpreter: Any = ScriptedInterpreter()
    interpreter.run_async = run_async
    return interpreter


@pytest.mark.parametrize(("share", "calls", "broken"), [(9, 16, True), (8, 16, False), (9, 8, False)])
async def test_a_tool_whose_runs_mostly_crash_stops_the_run(
    grader: GraderPool, tmp_path: Path, share: int, calls: int, broken: bool
) -> None:
    """More than half of at least 16 calls; of fewer nothing can be said."""
    experience, _ = make_experience(lambda number: True, calls // 2, tmp_path, grader)
    player = experience._player
    player.interpreter = crashing(share)
    engine: Any = player.engine
    engine.script = lambda request: ENCODER.encode("\n```python\n1\n```\n```output" if request.endswith("/0") else "x")
    object.__setattr__(experience._config.rollout, "prompts_per_step", calls // 2)
    object.__setattr__(experience._config.rollout, "max_response_tokens", 400)
    object.__setattr__(player.settings, "max_response_tokens", 400)
    if broken:
        with pytest.raises(SandboxError, match="9 of 16 tool calls crashed"):
            await experience.play(0)
    else:
        played = await experience.play(0)
        assert sum(len(trajectory.tool_calls) for trajectory in played.trajectories) == calls


@pytest.mark.parametrize(("version", "allowed"), [(0, False), (1, False), (2, True), (3, True), (4, True), (5, False)])
async def test_samples_of_a_policy_that_the_step_does_not_allow_are_refused(
    grader: GraderPool, tmp_path: Path, version: int, allowed: bool
) -> None:
    """As after a resumption that did not give the learner's weights to the engine."""
    experience, _ = make_experience(lambda number: True, 8, tmp_path, grader, steps=6, staleness=2)
    engine: Any = experience._player.engine
    engine.version = lambda _: version
    if allowed:
        assert len((await experience.play(4)).trajectories) == 8
    else:
        with pytest.raises(EngineError, match=f"policy version {version} .* step 4, .* versions 2 to 4"):
            await experience.play(4)


async def test_an_episode_may_end_at_a_void_turn() -> None:
    turns = {
        "0/p/0/0": "hm\n```output",
        "0/p/1/0": "\\boxed{1}\n```output",
        "0/p/2/0": "\n```python\n1\n```\n```output",
    }
    engine = ScriptedEngine(lambda request: ENCODER.encode(turns.get(request, "\\boxed{2}")))
    settings = EpisodeSettings(max_response_tokens=200, end_at_void_turn=True)
    player = EpisodePlayer(engine, ScriptedInterpreter(), VOCABULARY, ENCODER, ToRLFormat(1), settings)
    prompt = Prompt(Problem("p", "", ""), (5, 6))
    played = [await player.play(prompt, step=0, sample=sample) for sample in range(3)]
    assert [each.finish_reason for each in played] == [FinishReason.VOID, FinishReason.STOP, FinishReason.STOP]
    assert [len(each.tool_calls) for each in played] == [0, 1, 1]
    assert played[0].loss_mask_T.all()
    assert played[0].sampled_text == "hm\n```output"


# --- ahead of the learner -----------------------------------------------------------------------------------


async def settle() -> None:
    """Until all that can begin has begun: turns of the loop, which a busy machine does not make fewer."""
    for _ in range(500):
        await asyncio.sleep(0)


def begun(experience: Experience) -> set[int]:
    engine: Any = experience._player.engine
    return {int(request.split("/")[0]) for request in engine.requests}


@pytest.mark.parametrize("staleness", [0, 1, 3])
async def test_no_step_begins_further_ahead_than_allowed(grader: GraderPool, tmp_path: Path, staleness: int) -> None:
    experience, _ = make_experience(lambda number: True, 40, tmp_path, grader, steps=6, staleness=staleness)
    async with aclosing(experience.steps(0)) as steps:
        for step in range(6):
            played = await anext(steps)
            assert {trajectory.group.split("/")[0] for trajectory in played.trajectories} == {str(step)}
            await settle()
            assert begun(experience) == set(range(min(6, step + staleness + 1)))
            experience.advance(step + 1)
    problems = [request.split("/")[1] for request in experience._player.engine.requests]  # type: ignore[attr-defined]
    assert len(set(problems)) == 24  # no step took the problems of another


async def test_what_was_played_ahead_is_played_again_after_a_kill(grader: GraderPool, tmp_path: Path) -> None:
    experience, _ = make_experience(lambda number: True, 40, tmp_path, grader, steps=6, staleness=2)
    async with aclosing(experience.steps(0)) as steps:
        for step in range(3):
            await anext(steps)
            experience.advance(step + 1)
        await settle()
        position = json.loads(json.dumps(experience.position(3)))
        ahead = [request for request in experience._player.engine.requests if request[0] == "3"]  # type: ignore[attr-defined]
    assert ahead
    resumed, _ = make_experience(lambda number: True, 40, tmp_path, grader, steps=6, staleness=2)
    resumed._sampler.load_state_dict(position)
    async with aclosing(resumed.steps(3)) as steps:
        await anext(steps)
        await settle()
        again = [request for request in resumed._player.engine.requests if request[0] == "3"]  # type: ignore[attr-defined]
    assert sorted(again) == sorted(ahead)


async def test_a_host_that_breaks_ahead_of_the_learner_ends_the_steps_there(grader: GraderPool, tmp_path: Path) -> None:
    experience, _ = make_experience(lambda number: True, 40, tmp_path, grader, steps=6, staleness=2)
    engine: Any = experience._player.engine
    order = [prompt.problem.id for prompt in PromptSampler(experience._sampler._prompts, 0).take(12)]
    engine.fail_on = f"2/{order[9]}/1/0"
    before = asyncio.all_tasks()
    async with aclosing(experience.steps(0)) as steps:
        await anext(steps)
        await anext(steps)
        with pytest.raises(ExceptionGroup) as raised:
            await anext(steps)
    assert raised.group_contains(EngineError, match="the engine died")
    assert asyncio.all_tasks() == before


async def test_closing_leaves_nothing_in_flight(grader: GraderPool, tmp_path: Path) -> None:
    experience, _ = make_experience(lambda number: True, 40, tmp_path, grader, steps=6, staleness=3)
    engine: Any = experience._player.engine
    before = asyncio.all_tasks()
    steps = experience.steps(0)
    await anext(steps)
    await steps.aclose()
    assert asyncio.all_tasks() == before
    assert engine.open == 0
