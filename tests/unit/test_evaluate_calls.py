"""An evaluation may allow another number of tool calls than training does."""

import asyncio
from typing import Any

import pytest

from scripted_engine import ScriptedEngine, ScriptedInterpreter
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


def evaluated(form: Format, **settings: Any) -> tuple[Evaluation, EpisodePlayer]:
    """Two problems; the model calls the tool for ever, and says what is right each time."""
    player = EpisodePlayer(
        ScriptedEngine(lambda _: ENCODER.encode(f"\\boxed{{1}}\n{CALL}")),
        ScriptedInterpreter(),
        VOCABULARY,
        ENCODER,
        form,
        EpisodeSettings(400),
    )
    prompts = [Prompt(Problem(name, "", "1"), (5, 6)) for name in "ab"]

    async def main() -> Evaluation:
        async with GraderPool(1, 2.0) as grader:
            return await evaluate(player, grader, prompts, EvaluationConfig(**settings), name="set")

    return asyncio.run(main()), player


@pytest.mark.parametrize("form", [ToRLFormat(1), ZeroTIRFormat(len, 1)], ids=["torl", "zerotir"])
@pytest.mark.parametrize(("own", "calls"), [(None, 1), (0, 0), (4, 4)])
def test_calls_in_training_and_evaluation_are_two_numbers(form: Format, own: int | None, calls: int) -> None:
    found, player = evaluated(form, max_tool_calls=own)
    assert found.metrics[names.CALLS_PER_TRAJECTORY] == calls
    assert found.metrics[names.GREEDY_ACCURACY] == 1
    assert {trajectory.format for trajectory in found.trajectories} == {form.name}
    assert player.format == form  # training goes on with its own
