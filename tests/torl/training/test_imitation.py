"""Imitation weights by hand, from trajectories to samples."""

import re
from pathlib import Path

import numpy as np
import pytest

from builders import call, failed, scored, trajectory
from scripted_engine import ENCODER, TOKENIZER, ScriptedEngine, ScriptedInterpreter
from scripted_run import ScriptedRun
from torl.base.types import TrainingSample
from torl.components.tools import PythonTool, ShuffledTool
from torl.run.config import AlgorithmConfig
from torl.training.samples import training_samples, with_imitation
from torl.training.selection import mask_samples

# Three prompt tokens; each turn samples one token, and each observation has two.
MEMBERS = [
    scored(trajectory("a", "b")),
    scored(trajectory("c", "d", calls=[call(outcome=failed())]), correct=False),
    scored(trajectory("e")),
]


def weights(imitation: object) -> list[list[float]]:
    algorithm = AlgorithmConfig.model_validate({"imitation": imitation})
    found = with_imitation(training_samples(MEMBERS), MEMBERS, algorithm)
    return [[] if each.imitation_weights is None else each.imitation_weights.tolist() for each in found]


def test_observations_are_imitated() -> None:
    expected = [0, 0, 0, 0, 0.25, 0.25, 0]
    assert weights({"name": "observations", "weight": 0.25}) == [expected, expected, [0, 0, 0, 0]]


def test_correct_responses_are_imitated() -> None:
    expected = [[0, 0, 0, 0.5, 0, 0, 0.5], [0] * 7, [0, 0, 0, 0.5]]
    assert weights({"name": "correct_responses", "weight": 0.5}) == expected


def test_custom_imitation_sees_outcomes() -> None:
    expected = [0, 0, 0, 0, 0.5, 0.5, 0]
    assert weights({"name": "custom_components:results", "weight": 0.5}) == [expected, [0] * 7, [0] * 4]


def test_no_imitation_by_default() -> None:
    assert weights(None) == [[], [], []]


@pytest.mark.parametrize("masked", [True, False])
def test_masked_trajectory_is_not_imitated(masked: bool) -> None:
    algorithm = AlgorithmConfig.model_validate({"imitation": "observations"})
    samples: list[TrainingSample] = with_imitation(training_samples(MEMBERS[:1]), MEMBERS[:1], algorithm)
    (found,) = mask_samples(samples, {"mine": np.array([masked])})
    assert found.imitation_weights is not None
    assert found.imitation_weights.any() != masked


@pytest.mark.parametrize("shuffled", [True, False])
async def test_control_of_echo_imitates_what_other_problems_observed(shuffled: bool, tmp_path: Path) -> None:
    """Each problem prints its own name; with shuffled observations, ECHO's targets are the names of other problems."""

    def script(request: str) -> list[int]:
        found = re.fullmatch(r"[\w-]+/(p\d+)/\d+/(\d)", request)
        assert found is not None
        code = f"So:\n```python\n{found[1]}\n```\n```output"
        return ENCODER.encode("\\boxed{1}" if found[2] == "1" else code)

    run = ScriptedRun(tmp_path, rollout={"max_response_tokens": 400, "prompts_per_step": 8})
    python = PythonTool(interpreter=ScriptedInterpreter())
    run.player.tools = {"python": ShuffledTool(python, 0) if shuffled else python}
    run.player.engine = ScriptedEngine(script)
    played = await run.step_player.play(0)
    members = [member for group in played.batch for member in group.members]
    algorithm = AlgorithmConfig.model_validate({"imitation": {"name": "observations", "weight": 0.1}})
    samples = with_imitation(training_samples(members), members, algorithm)
    own, problems = set(), {group.prompt.problem.id for group in played.batch}
    for member, sample in zip(members, samples, strict=True):
        assert sample.imitation_weights is not None
        imitated = sample.imitation_weights > 0
        assert not (imitated & sample.loss_mask).any()  # no sampled token has both losses
        (observed,) = re.findall(r"p\d+", TOKENIZER.decode(sample.token_ids[imitated].tolist()))
        assert observed in problems
        if observed == member.trajectory.prompt.problem.id:
            own.add(observed)
    if shuffled:  # only the first problem of a run that calls cannot be given the outcome of another
        assert len(own) <= 1 < len(problems)
    else:
        assert own == problems
