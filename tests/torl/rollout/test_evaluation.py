"""Requests of an evaluation to the engine: prompts, numbers of samples, temperatures, seeds."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from builders import asked, player
from scripted_engine import ENCODER, Request, ScriptedEngine, ScriptedInterpreter
from torl.base.component import RunContext
from torl.base.errors import EngineError
from torl.base.types import Prompt
from torl.components.formats import Format
from torl.components.rewards import MathOptions, MathReward
from torl.components.text.prompts import EncodedPrompts
from torl.recipes.torl import ToRLFormat
from torl.recipes.zerotir import ZeroTIRFormat
from torl.rollout.episode import EpisodePlayer
from torl.rollout.evaluation import Evaluation, evaluate
from torl.rollout.startup import Rollouts
from torl.run.config import EvaluationConfig
from torl.run.records import metric_names as names

CALL = "```python\nprint(1)\n```\n```output"


@pytest.fixture(scope="module")
async def reward() -> AsyncIterator[MathReward]:
    boxed = MathReward(MathOptions())
    await boxed.start(RunContext())
    yield boxed
    await boxed.close()


def of(prompts: Sequence[Prompt], *too_long: str) -> EncodedPrompts:
    return EncodedPrompts(tuple(prompts), too_long)


async def evaluated(
    reward: MathReward,
    name: str = "set",
    problems: str = "ab",
    *,
    form: Format | None = None,
    training_calls: int = 0,
    **settings: Any,
) -> tuple[Evaluation, EpisodePlayer]:
    """Some problems; the model calls the tool indefinitely, and answers correctly each time."""
    engine = ScriptedEngine(lambda _: ENCODER.encode(f"\\boxed{{1}}\n{CALL}"))
    playing = player(
        engine, ScriptedInterpreter(), form=form, limit=400, max_tool_calls=training_calls, temperature=0.9
    )
    prompts = [asked(problem, token_ids=(5, 6)) for problem in problems]
    evaluation = await evaluate(Rollouts(playing, reward), of(prompts), EvaluationConfig(**settings), name=name)
    return evaluation, playing


@pytest.mark.parametrize("form", [ToRLFormat(), ZeroTIRFormat()], ids=["torl", "zerotir"])
@pytest.mark.parametrize(("own", "calls"), [(None, 1), (0, 0), (4, 4)])
async def test_calls_in_training_and_evaluation_are_two_numbers(
    reward: MathReward, form: Format, own: int | None, calls: int
) -> None:
    evaluation, playing = await evaluated(
        reward, form=form, training_calls=1, rollout={} if own is None else {"max_tool_calls": own}
    )
    assert evaluation.metrics[names.CALLS_PER_TRAJECTORY] == calls
    assert evaluation.metrics[names.GREEDY_ACCURACY] == 1
    members = [member for group in evaluation.groups for member in group.members]
    assert {member.trajectory.format for member in members} == {form.name}
    assert {len(member.trajectory.tool_calls) for member in members} == {calls}
    assert playing.settings.max_tool_calls == 1  # training continues with its own
    assert playing.format is form


def first_turns(playing: EpisodePlayer) -> dict[str, Request]:
    """Requests for first turns by "label/problem/sample"."""
    assert isinstance(playing.engine, ScriptedEngine)
    requests = playing.engine.requests
    return {name.removesuffix("/0"): request for name, request in requests.items() if name[-2:] == "/0"}


async def test_problems_that_are_too_long_to_be_played_count_as_not_solved(reward: MathReward) -> None:
    """Three of four problems are right; over the played ones the accuracy would be 1."""
    engine = ScriptedEngine(lambda _: ENCODER.encode("\\boxed{1}"))
    rollouts = Rollouts(player(engine, ScriptedInterpreter()), reward)
    problems = of([asked(name, token_ids=(5,)) for name in "abc"], "long")
    settings = EvaluationConfig(greedy=True, samples_per_problem=2)
    metrics = (await evaluate(rollouts, problems, settings, name="set")).metrics
    assert [metrics[name] for name in (names.ACCURACY, names.GREEDY_ACCURACY, names.SOLVED)] == [0.75] * 3
    assert metrics[names.TOO_LONG] == 1


async def test_greedy_and_sampled_responses_in_the_order_of_the_problems(reward: MathReward) -> None:
    evaluation, playing = await evaluated(
        reward, problems="dcb", greedy=True, samples_per_problem=2, rollout={"temperature": 0.6, "top_p": 0.7}
    )
    requests = first_turns(playing)
    greedy = {f"set-greedy/{problem}/0" for problem in "dcb"}
    sampled = {f"set-sampled/{problem}/{sample}" for problem in "dcb" for sample in range(2)}
    assert requests.keys() == greedy | sampled
    assert {requests[name].sampling.temperature for name in greedy} == {0.0}
    assert {requests[name].sampling.temperature for name in sampled} == {0.6}
    assert {request.sampling.top_p for request in requests.values()} == {0.7}
    # The groups are those of the samples, in the order of the problems whichever ended first.
    assert [group.prompt.problem.id for group in evaluation.groups] == ["d", "c", "b"]
    assert [
        (each.trajectory.group_id, each.trajectory.sample_index)
        for group in evaluation.groups
        for each in group.members
    ] == [(f"set-sampled/{problem}", sample) for problem in "dcb" for sample in range(2)]
    assert all(member.grade.correct for group in evaluation.groups for member in group.members)
    # The greedy responses are kept too, to be recorded under a separate name.
    assert evaluation.by_file("set") == {"set": evaluation.groups, "set.greedy": evaluation.greedy}
    kept = [member.trajectory.group_id for group in evaluation.greedy for member in group.members]
    assert kept == [f"set-greedy/{problem}" for problem in "dcb"]
    assert (playing.settings.temperature, playing.settings.top_p) == (0.9, 1.0)  # training continues with its own


async def test_greedy_and_sampled_episodes_are_played_together(reward: MathReward) -> None:
    _, playing = await evaluated(reward, problems="dcb", greedy=True, samples_per_problem=2)
    assert isinstance(playing.engine, ScriptedEngine)
    assert playing.engine.most_open == 9


async def test_error_of_one_kind_ends_the_episodes_of_the_other(reward: MathReward) -> None:
    engine = ScriptedEngine(lambda _: ENCODER.encode("\\boxed{1}" * 50), fail_on="set-greedy/b/0/0")
    rollouts = Rollouts(player(engine, ScriptedInterpreter()), reward)
    settings = EvaluationConfig(greedy=True, samples_per_problem=2)
    with pytest.raises(EngineError, match="the engine died"):
        await evaluate(rollouts, of([asked(name, token_ids=(5,)) for name in "ab"]), settings, name="set")
    assert (engine.open, rollouts.player.slots.sampling) == (0, 0)


async def test_groups_are_in_the_order_of_the_problems_whichever_ended_first(reward: MathReward) -> None:
    engine = ScriptedEngine(lambda request: ENCODER.encode("So.\n") * (5 - int(request.split("/")[1])))
    prompts = [asked(str(number), token_ids=(5,)) for number in range(4)]
    rollouts = Rollouts(player(engine, ScriptedInterpreter()), reward)
    evaluation = await evaluate(rollouts, of(prompts), EvaluationConfig(), name="set")
    assert [name.split("/")[1] for name in engine.ended] == ["3", "2", "1", "0"]
    assert [group.prompt.problem.id for group in evaluation.groups] == ["0", "1", "2", "3"]


async def test_evaluation_uses_the_reward_of_the_run() -> None:
    boxed = MathReward(MathOptions(correct=3.0))
    await boxed.start(RunContext())
    try:
        evaluation, _ = await evaluated(boxed)
    finally:
        await boxed.close()
    assert evaluation.metrics[names.REWARD_MEAN] == 3.0


async def test_evaluation_has_its_own_reward_and_limit(reward: MathReward) -> None:
    double = MathReward(MathOptions(correct=2.0))
    await double.start(RunContext())
    engine = ScriptedEngine(lambda _: ENCODER.encode("\\boxed{1}" + " and so on" * 20))
    playing = player(engine, ScriptedInterpreter(), limit=8)
    try:
        rollouts, settings = Rollouts(playing, reward, double), EvaluationConfig(rollout={"max_response_tokens": 80})
        found = await evaluate(rollouts, of([asked("a", token_ids=(5, 6))]), settings, name="set")
    finally:
        await double.close()
    assert found.metrics[names.REWARD_MEAN] == 2.0
    assert found.metrics[names.MAX_RESPONSE] == 80
    assert playing.settings.max_response_tokens == 8  # training continues with its own


async def test_without_samples_the_groups_are_the_greedy_ones(reward: MathReward) -> None:
    evaluation, playing = await evaluated(reward, greedy=True, samples_per_problem=0)
    groups = [member.trajectory.group_id for group in evaluation.groups for member in group.members]
    assert groups == ["set-greedy/a", "set-greedy/b"]
    assert evaluation.by_file("set") == {"set": evaluation.groups}
    assert {request.sampling.temperature for request in first_turns(playing).values()} == {0.0}


async def test_greedy_accuracy_requires_greedy_responses(reward: MathReward) -> None:
    evaluation, playing = await evaluated(reward, greedy=False, samples_per_problem=1)
    assert names.GREEDY_ACCURACY not in evaluation.metrics
    assert {request.sampling.temperature for request in first_turns(playing).values()} == {1.0}
    assert {request.sampling.top_p for request in first_turns(playing).values()} == {1.0}  # as in training


@pytest.mark.parametrize(("own", "boxes"), [(None, 2), (["}"], 1), ([], 2)])
async def test_stop_sequences_of_an_evaluation(reward: MathReward, own: list[str] | None, boxes: int) -> None:
    """The response is two boxes; "}" ends it after the first."""
    engine = ScriptedEngine(lambda _: ENCODER.encode("\\boxed{1} \\boxed{2}"))
    playing = player(engine, ScriptedInterpreter(), limit=400)
    settings = EvaluationConfig(rollout={} if own is None else {"stop": own})
    evaluation = await evaluate(Rollouts(playing, reward), of([asked("a")]), settings, name="set")
    (member,) = evaluation.groups[0].members
    assert member.trajectory.text.count("boxed") == boxes
    assert playing.settings.stop == ()


async def test_seeds_depend_on_the_set_and_the_problem_only(reward: MathReward) -> None:
    async def seeds(name: str) -> dict[str, int | None]:
        _, playing = await evaluated(reward, name=name, greedy=False, samples_per_problem=2)
        return {name.partition("/")[2]: request.sampling.seed for name, request in first_turns(playing).items()}

    first, again, other = [await seeds(name) for name in ("one", "one", "two")]
    assert first == again
    assert len({*first.values(), *other.values()}) == 8
