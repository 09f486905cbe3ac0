"""Inputs of estimators: graded responses with calls, observations and reward parts, at random and for hypothesis."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from builders import call, grade, trajectory, turn
from torl.base.options import ChosenFrom
from torl.base.types import Block, ScoredTrajectory
from torl.components.algorithms import ESTIMATORS
from torl.components.algorithms.advantages import Estimator, EstimatorInputs

CODE = turn("```python\nprint(1)\n```\n```output", blocks=[Block("print(1)\n", 10, 19, 3)])
OPTIONS: Mapping[str, Mapping[str, Any]] = {"adatir": {"max_calls": 2}}
"""The options without a default."""
TOKEN_ARRAYS = ("values_M", "old_logprobs_M", "ref_logprobs_M", "entropies_M", "collision_probs_M")
"""The numbers of tokens that estimators read. Numbers at tokens that were not sampled have no influence."""


class Response(NamedTuple):
    """A response of `calls` + 1 turns of three tokens, with an observation after each call."""

    correct: bool
    calls: int
    codes: bool
    """Whether turns contain code blocks."""
    length_part: float
    """The second part of the reward. The first is whether the answer is correct."""

    def scored(self) -> ScoredTrajectory:
        turns = [turn("Let me think."), CODE][: 1 + self.codes] * 2
        played = trajectory(*(turns * 2)[: self.calls + 1], turn_tokens=3, calls=[call() for _ in range(self.calls)])
        parts = {"answer": float(self.correct), "length": self.length_part}
        given = grade(self.correct, sum(parts.values()), parts=parts)
        return ScoredTrajectory(played, given, given.reward)


def inputs_of(groups: Sequence[Sequence[Response]], seed: int) -> EstimatorInputs:
    """Groups one after the other. Each response has a prompt of two tokens; `seed` gives the numbers of the tokens."""
    random = np.random.default_rng(seed)
    members = [response.scored() for group in groups for response in group]
    masks = [np.concatenate([[False] * 2, each.trajectory.loss_mask_T]) for each in members]
    mask_M = np.concatenate(masks)
    turns = [np.where(mask, np.cumsum(np.diff(mask.astype(int), prepend=0) == 1) - 1, -1) for mask in masks]
    numbers = [random.normal(-1, 1, len(mask_M)).astype(np.float32) for _ in range(4)]
    probs = np.exp(-np.abs(numbers[1]))
    return EstimatorInputs(
        rewards_N=np.array([each.total for each in members]),
        groups_N=[f"g{index}" for index, group in enumerate(groups) for _ in group],
        lengths_N=np.array([len(mask) for mask in masks], np.int64),
        mask_M=mask_M,
        values_M=numbers[0],
        turns_M=np.concatenate(turns).astype(np.int32),
        members_N=members,
        old_logprobs_M=-np.abs(numbers[1]),
        ref_logprobs_M=numbers[2],
        entropies_M=np.abs(numbers[3]),
        collision_probs_M=probs**2 + random.random(len(mask_M), np.float32) * (1 - probs) ** 2,
    )


def random_inputs(seed: int, groups: int = 5) -> EstimatorInputs:
    """Groups of one to six responses."""
    random = np.random.default_rng(seed)

    def response() -> Response:
        correct, codes = bool(random.random() < 0.6), bool(random.random() < 0.5)
        return Response(correct, int(random.integers(0, 4)), codes, float(random.random()))

    return inputs_of([[response() for _ in range(size)] for size in random.integers(1, 7, groups)], seed)


def graded_inputs(min_members: int = 1) -> st.SearchStrategy[EstimatorInputs]:
    """Up to four groups of up to five responses."""
    part = st.sampled_from([0.0, 0.25, 1.0]) | st.floats(0, 1, width=32)
    response = st.builds(Response, st.booleans(), st.integers(0, 3), st.booleans(), part)
    groups = st.lists(st.lists(response, min_size=min_members, max_size=5), min_size=1, max_size=4)
    return st.builds(inputs_of, groups, st.integers(0, 2**32 - 1))


def estimate(name: str, inputs: EstimatorInputs, **options: Any) -> np.ndarray:
    """The advantages of an estimator by its name in configurations."""
    estimator = _chosen(name, **options) if options else _chosen_alone(name)
    advantages: np.ndarray = estimator(inputs).advantages_M
    return advantages


def _chosen(name: str, **options: Any) -> Estimator:
    section = {"name": name, **OPTIONS.get(name, {}), **options}
    estimator: Estimator = ChosenFrom(ESTIMATORS, "estimator", positional_count=1).choose(section).bind()
    return estimator


_chosen_alone = cache(_chosen)  # which takes longer than the estimator itself


def rows(inputs: EstimatorInputs, values_M: np.ndarray) -> list[list[float]]:
    """The values of the sampled tokens of each response."""
    cuts = np.cumsum(inputs.lengths_N)[:-1]
    pairs = zip(np.split(values_M, cuts), np.split(inputs.mask_M, cuts), strict=True)
    return [values[mask].tolist() for values, mask in pairs]


def groups_of(inputs: EstimatorInputs) -> list[list[int]]:
    """The indices of the responses of each group."""
    found: dict[Any, list[int]] = defaultdict(list)
    for index, group in enumerate(inputs.groups_N):
        found[group].append(index)
    return list(found.values())
