"""The check of the learner's numbers of tokens: against the records of their trajectories, and against each other."""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from torl.base.types import UpdateNumbers
from torl.run.config import AlgorithmConfig
from torl.run.records.rows import TrajectoryRecord
from torl_lab.audit.batch import LearnedBatch
from torl_lab.audit.checks import MAX_LOGPROB, Check, place_of
from torl_lab.audit.naive.learner import Array, naive_clipped, naive_recorded_groups, naive_weights

_TOLERANCE: Final = 2e-5  # of numbers that the learner computes in float32


def check_updates(check: Check, batch: LearnedBatch) -> None:
    """Check the learner's numbers of a step, as one comparison for each trajectory."""
    step, config, keys, learned, numbers = batch.step, batch.config, batch.keys, batch.learned, batch.numbers
    places = {key: index for index, key in enumerate(keys)}
    parts = enumerate(batch.mini_batches("policy"))
    last = {index: number for number, part in parts for index in part}
    groups = dict.fromkeys(keys[index].group for index in sorted(learned))
    drawn = naive_recorded_groups(list(groups), step, config)
    recorded = {key.group for key in numbers}
    check.expect(f"step {step}: recorded groups", sorted(drawn), sorted(recorded))
    order = [places[key] for key in numbers if key in places]
    if order != sorted(order):
        check.add(False, f"step {step}: expected the recorded trajectories in the order of the batch")
    for index in sorted(learned):
        if keys[index].group in drawn & recorded and keys[index] not in numbers:
            check.add(False, f"{place_of(batch.trajectories[index])}: expected numbers of its tokens, found none")
    for trajectory, found in numbers.items():
        if trajectory not in places:
            check.add(False, f"step {step}: {trajectory} is recorded, but is not in the batch")
            continue
        index = places[trajectory]
        record = batch.trajectories[index]
        mismatch, wrong = _mismatch(record, found, config.algorithm, hidden=batch.masked[index])
        if mismatch is None and found.update != last[index]:
            mismatch = f"update {found.update}, expected {last[index]}, the last with the trajectory"
        check.add(mismatch is None, f"{place_of(record)}: {mismatch}", tokens=wrong)


def _mismatch(
    record: TrajectoryRecord, found: UpdateNumbers, algorithm: AlgorithmConfig, *, hidden: bool
) -> tuple[str | None, list[int]]:
    """Return the first mismatch of a trajectory, and the tokens of the response that have it."""
    trajectory = record.trajectory
    mask_T = np.zeros_like(trajectory.loss_mask_T) if hidden else trajectory.loss_mask_T
    tokens = np.flatnonzero(mask_T)
    arrays = {name: array.astype(np.float64) for name, array in found.arrays.items()}
    sizes = {name: len(array) for name, array in arrays.items() if len(array) != len(tokens)}
    if sizes:
        return f"{len(tokens)} tokens have a loss, and the learner recorded {sizes}", []
    for name, wrong in _differences(record, arrays, mask_T, algorithm):
        if wrong.any():
            return f"{name} at token {tokens[wrong][0]}", tokens[wrong].tolist()
    return None, []


def _differences(
    record: TrajectoryRecord, arrays: Mapping[str, Array], mask_T: npt.NDArray[np.bool_], algorithm: AlgorithmConfig
) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Yield a description of each comparison, with the tokens with a loss at which it fails."""
    missing = {"learner_logprobs", "entropies", "advantages"} - arrays.keys()
    if missing:
        yield f"no {', '.join(sorted(missing))}", np.ones(int(mask_T.sum()), np.bool_)
        return
    rollout = record.trajectory.rollout_logprobs_T[mask_T].astype(np.float64)
    learner, advantages = arrays["learner_logprobs"], arrays["advantages"]
    old = arrays.get("old_logprobs", learner)
    yield "a positive log-probability", ~(learner <= MAX_LOGPROB)
    if "call_logprobs" in arrays:
        yield "a positive log-probability of a call", ~(arrays["call_logprobs"] <= MAX_LOGPROB)
    yield "a negative entropy", ~(arrays["entropies"] >= -_TOLERANCE)
    recorded = record.token_arrays.get("advantages")
    expected = np.full(len(learner), record.advantage or 0.0) if recorded is None else recorded[mask_T]
    yield "another advantage than the recorded one", _differs(advantages, expected)
    if "old_logprobs" in record.token_arrays and "old_logprobs" in arrays:
        before = record.token_arrays["old_logprobs"][mask_T]
        yield "another log-probability before the update than the recorded one", _differs(old, before)
    weights = naive_weights(algorithm, old, rollout)
    if weights is not None:
        weights_found = arrays.get("importance_weights", np.full(len(learner), np.nan))
        yield "an importance weight that does not follow from the log-probabilities", _differs(weights_found, weights)
    clipped = naive_clipped(algorithm, learner - old, advantages)
    if clipped is not None:
        flags = arrays.get("clipped", np.full(len(learner), np.nan))
        yield "a clipping that does not follow from ratio and advantage", ~np.isnan(clipped) & (flags != clipped)


def _differs(found: Array, expected: npt.NDArray[np.floating]) -> npt.NDArray[np.bool_]:
    differs: npt.NDArray[np.bool_] = ~np.isclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE)
    return differs
