"""What an evaluation asks the engine for: which prompts, how often, at which temperature, with which seeds."""

from typing import Any

import pytest

from scripted_engine import Request, ScriptedEngine, ScriptedInterpreter
from tokenizers_for_tests import byte_level_bpe
from torl.config import EvaluationConfig
from torl.evaluate import Evaluation, evaluate
from torl.metrics import names
from torl.reward.grader import GraderPool
from torl.rollout.episode import EpisodePlayer, EpisodeSettings
from torl.rollout.formats import Format, ToRLFormat, ZeroTIRFormat
from torl.rollout.tokenizer import TextEncoder
from torl.rollout.vocabulary import build_vocabulary
from torl.types import Problem, Prompt

TOKENIZER = byte_level_bpe()
VOCABULARY = build_vocabulary(TOKENIZER)
ENCODER = TextEncoder(TOKENIZER, VOCABULARY)
CALL = "```python\nprint(1)\n```\n```output"


@pytest.fixture(scope="module")
async def grader() -> Any:
    async with GraderPool(1, 2.0) as pool:
        yield pool


async def evaluated(
    grader: GraderPool, form: Format, name: str = "set", problems: str = "ab", **settings: Any
) -> tuple[Evaluation, Any]:
    """Some problems; the model calls the tool for ever, and says what is right each time."""
    player = EpisodePlayer(
        ScriptedEngine(lambda _: ENCODER.encode(f"\\boxed{{1}}\n{CALL}")),
        ScriptedInterpreter(),
        VOCABULARY,
        ENCODER,
        form,
        EpisodeSettings(400, temperature=0.9),  # of training
    )
    prompts = [Prompt(Problem(problem, "", "1"), (5, 6)) for problem in problems]
    return await evaluate(player, grader, prompts, EvaluationConfig(**settings), name=name), player


@pytest.mark.parametrize("form", [ToRLFormat(1), ZeroTIRFormat(len, 1)], ids=["torl", "zerotir"])
@pytest.mark.parametrize(("own", "calls"), [(None, 1), (0, 0), (4, 4)])
async def test_calls_in_training_and_evaluation_are_two_numbers(
    grader: GraderPool, form: Format, own: int | None, calls: int
) -> None:
    found, player = await evaluated(grader, form, max_tool_calls=own)
    assert found.metrics[names.CALLS_PER_TRAJECTORY] == calls
    assert found.metrics[names.GREEDY_ACCURACY] == 1
    assert {trajectory.format for trajectory in found.trajectories} == {form.name}
    assert player.format == form  # training goes on with its own


def asked(player: Any) -> dict[str, Request]:
    """First turns by "label/problem/sample"."""
    return {
        request.removesuffix("/0"): found for request, found in player.engine.requests.items() if request[-2:] == "/0"
    }


async def test_greedy_and_sampled_responses_of_the_first_problems(grader: GraderPool) -> None:
    found, player = await evaluated(
        grader, ToRLFormat(0), problems="dcba", max_problems=3, greedy=True, samples=2, temperature=0.6
    )
    requests = asked(player)
    greedy = {f"set-greedy/{problem}/0" for problem in "dcb"}
    sampled = {f"set-sampled/{problem}/{sample}" for problem in "dcb" for sample in range(2)}
    assert requests.keys() == greedy | sampled
    assert {requests[name].sampling.temperature for name in greedy} == {0.0}
    assert {requests[name].sampling.temperature for name in sampled} == {0.6}
    # The records are those of the samples, in one order whichever ended first.
    assert [(each.group, each.sample) for each in found.trajectories] == [
        (f"set-sampled/{problem}", sample) for problem in "bcd" for sample in range(2)
    ]
    assert len(found.grades) == 6
    assert player.settings.temperature == 0.9  # training goes on with its own


async def test_without_samples_the_records_are_the_greedy_ones(grader: GraderPool) -> None:
    found, player = await evaluated(grader, ToRLFormat(0), greedy=True, samples=0)
    assert [each.group for each in found.trajectories] == ["set-greedy/a", "set-greedy/b"]
    assert {request.sampling.temperature for request in asked(player).values()} == {0.0}


async def test_without_greedy_responses_there_is_no_greedy_accuracy(grader: GraderPool) -> None:
    found, player = await evaluated(grader, ToRLFormat(0), greedy=False, samples=1)
    assert names.GREEDY_ACCURACY not in found.metrics
    assert {request.sampling.temperature for request in asked(player).values()} == {1.0}


async def test_seeds_depend_on_the_set_and_the_problem_only(grader: GraderPool) -> None:
    async def seeds(name: str) -> dict[str, int | None]:
        _, player = await evaluated(grader, ToRLFormat(0), name=name, greedy=False, samples=2)
        return {request.partition("/")[2]: found.sampling.seed for request, found in asked(player).items()}

    first, again, other = [await seeds(name) for name in ("one", "one", "two")]
    assert first == again
    assert len({*first.values(), *other.values()}) == 8
