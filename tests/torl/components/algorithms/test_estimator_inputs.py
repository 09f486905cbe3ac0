"""The inputs of an estimator by hand: reward parts, correctness, calls and the first code of each trajectory."""

from dataclasses import replace

import numpy as np

from builders import call, grade, scored, trajectory, turn
from torl.base.types import Block, ScoredGroup, ScoredTrajectory, TrainingSample
from torl.components.algorithms.advantages import EstimatorInputs, TokenAdvantages
from torl.components.algorithms.requirements import requires
from torl.run.config import AlgorithmConfig
from torl.training.samples import training_samples, with_advantages
from torl.training.selection import with_shuffled_rewards
from torl.training.step import token_arrays

CODE = turn("```python\nprint(1)\n```\n```output", blocks=[Block("print(1)\n", 10, 19, 3)])
RECEIVED: list[EstimatorInputs] = []


def recorded(inputs: EstimatorInputs) -> TokenAdvantages:
    RECEIVED.append(inputs)
    return TokenAdvantages(np.zeros(len(inputs.mask_M), np.float32))


@requires(reference=True, old_logprobs=True, entropies=True)
def demanding(inputs: EstimatorInputs) -> TokenAdvantages:
    return recorded(inputs)


def members() -> list[ScoredTrajectory]:
    """Prompts of three tokens, turns of five, observations of two."""
    played = [
        trajectory("Let me think.", CODE, "a", turn_tokens=5, calls=[call(None), call()]),  # one malformed call
        trajectory("no code", turn_tokens=5),
        trajectory("first", "a call without a block", "end", turn_tokens=5, calls=[call(tool="search")]),
    ]
    grades = [
        grade(reward=0.75, parts={"answer": 1.0, "length": -0.25}),
        grade(False, reward=0.5, parts={"format": 0.5}),
        replace(grade(reward=1.0, parts={"answer": 1.0}), valid_format=False),
    ]
    return [ScoredTrajectory(each, given, given.reward) for each, given in zip(played, grades, strict=True)]


def received(name: str, samples: list[TrainingSample] | None = None) -> EstimatorInputs:
    group = ScoredGroup(members()[0].trajectory.prompt, tuple(members()))
    algorithm = AlgorithmConfig.model_validate({"estimator": f"{__name__}:{name}"})
    with_advantages(samples or training_samples(members()), [group], algorithm)
    return RECEIVED.pop()


def test_estimator_gets_parts_correctness_calls_and_first_code() -> None:
    inputs = received("recorded")
    parts = {name: values.tolist() for name, values in inputs.parts.items()}
    assert parts == {"answer": [1, 0, 1], "format": [0, 0.5, 0], "length": [-0.25, 0, 0]}
    assert inputs.correct.tolist() == [True, False, False]  # the last one in an invalid format
    assert inputs.calls.tolist() == [2, 0, 1]
    assert inputs.sampled_tokens.tolist() == [15, 5, 15]
    # Five tokens and three of the second turn; no code; a call in the first turn. Observations are not counted.
    assert inputs.first_code.tolist() == [8, -1, 0]
    assert [each.trajectory.text for each in inputs.members_N] == [each.trajectory.text for each in members()]
    assert (inputs.old_logprobs_M, inputs.ref_logprobs_M, inputs.entropies_M) == (None, None, None)


def test_estimator_gets_the_arrays_that_it_requires() -> None:
    names = ("old_logprobs", "ref_logprobs", "entropies")
    samples = [
        replace(each, **{name: np.full(len(each), value, np.float32) for value, name in enumerate(names)})
        for each in training_samples(members())
    ]
    inputs = received("demanding", samples)
    found = (inputs.old_logprobs_M, inputs.ref_logprobs_M, inputs.entropies_M)
    for value, array in enumerate(found):
        assert array is not None
        assert array.tolist() == [value] * len(inputs.mask_M)
    algorithm = AlgorithmConfig.model_validate({"estimator": f"{__name__}:demanding"})
    recorded_arrays = token_arrays(replace(samples[0], advantages=samples[0].rollout_logprobs), 19, algorithm)
    assert recorded_arrays.keys() == {*names, "advantages"}  # for the audit, which calls the estimator again


def test_shuffled_rewards_take_their_parts_along() -> None:
    many = [scored(reward=float(reward)) for reward in range(8)]
    many = [replace(each, grade=replace(each.grade, parts={"all": each.reward})) for each in many]
    (shuffled,) = with_shuffled_rewards([ScoredGroup(many[0].trajectory.prompt, tuple(many))], seed=1)
    assert [each.grade.parts["all"] for each in shuffled.members] == [each.reward for each in shuffled.members]
    assert [each.reward for each in shuffled.members] != [each.reward for each in many]
