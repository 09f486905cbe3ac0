"""The check of the learner's numbers of tokens: against the records of their trajectories, and against each other."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from torl.base.types import UpdateNumbers
from torl.components.algorithms.group_advantages import indices_by_group
from torl.components.algorithms.losses.correction import icepop, mis, tis
from torl.components.algorithms.losses.policy import cispo_policy_loss, gspo_policy_loss
from torl.learner.optimizer_steps import mini_batches
from torl.run.config import AlgorithmConfig, TrainConfig
from torl.run.records.files import token_file
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.tokens import TokenKey, keyed, read_token_numbers
from torl.training.token_records import draw_groups
from torl_lab.audit.advantages import recorded_masks
from torl_lab.audit.checks import MAX_LOGPROB, Check, place_of
from torl_lab.audit.history import RunHistory
from torl_lab.audit.learning import CLIPPING_LOSSES, LearnedBatch, batch_samples
from torl_lab.audit.logprobs import SampledTrajectories

Numbers = npt.NDArray[np.float64]

_TOLERANCE: Final = 2e-5  # of numbers that the learner computes in float32
_LIMIT: Final = 20.0  # of log ratios, as the losses clamp them
_EDGE: Final = 1e-4  # relative distance to a bound below which rounding decides


def check_recorded_updates(
    check: Check,
    history: RunHistory,
    records: Sequence[TrajectoryRecord],
    config: TrainConfig,
    sampled: SampledTrajectories | None = None,
) -> None:
    """Read the numbers of a step and check them.

    Args:
        check: Result that the comparisons are counted in.
        history: History of the run.
        records: Records of the step.
        config: Configuration of the step.
        sampled: Trajectories whose log-probabilities are recomputed; these are added.
    """
    step = records[0].step
    if not token_file(history.directory, step).exists() and history.may_lack_row(step):
        return  # the run has stopped before it wrote the file
    numbers = read_token_numbers(history.directory, step)
    check_updates(check, records, numbers, config)
    if sampled is not None:
        sampled.add_updates(records, numbers)


def check_updates(
    check: Check, records: Sequence[TrajectoryRecord], numbers: Mapping[TokenKey, UpdateNumbers], config: TrainConfig
) -> None:
    """Check the numbers of a step.

    Args:
        check: Result that the comparisons are counted in, one for each trajectory.
        records: Records of the step.
        numbers: The learner's numbers.
        config: Configuration of the step.
    """
    if not records:
        return
    step = records[0].step
    episodes = [record for record in records if record.advantage is not None]
    batch = list(keyed(episodes))
    masked = np.any([*recorded_masks(records, config).values(), np.zeros(len(batch), np.bool_)], axis=0)
    places = {key: index for index, (key, _) in enumerate(batch)}
    algorithm = config.algorithm
    key = (config.run.seed, step, "policy")
    samples = batch_samples([record.episode_trajectories for record in episodes])
    parts = list(enumerate(mini_batches(samples, algorithm.epochs, algorithm.mini_batches, key)))
    last = {index: number for number, part in parts for index in part}
    learned = LearnedBatch.from_records(records, step, config).learned
    drawn = _drawn_groups(batch, learned, step, config)
    recorded = {key.group for key in numbers}
    check.expect(f"step {step}: recorded groups", sorted(drawn), sorted(recorded))
    order = [places[key] for key in numbers if key in places]
    if order != sorted(order):
        check.add(False, f"step {step}: expected the recorded trajectories in the order of the batch")
    for index in sorted(learned):
        if batch[index][0].group in drawn & recorded and batch[index][0] not in numbers:
            check.add(False, f"{place_of(batch[index][1])}: expected numbers of its tokens, found none")
    for trajectory, found in numbers.items():
        if trajectory not in places:
            check.add(False, f"step {step}: {trajectory} is recorded, but is not in the batch")
            continue
        index = places[trajectory]
        record = batch[index][1]
        mismatch, wrong = _mismatch(record, found, algorithm, hidden=bool(masked[index]))
        if mismatch is None and found.update != last[index]:
            mismatch = f"update {found.update}, expected {last[index]}, the last with the trajectory"
        check.add(mismatch is None, f"{place_of(record)}: {mismatch}", tokens=wrong)


def _drawn_groups(
    batch: Sequence[tuple[TokenKey, TrajectoryRecord]], learned: Collection[int], step: int, config: TrainConfig
) -> set[str]:
    """Return the groups that the run must record."""
    groups = [
        indices
        for indices in indices_by_group([key.group for key, _ in batch])
        if any(index in learned for index in indices)
    ]
    return {batch[indices[0]][0].group for indices in draw_groups(groups, step, config)}


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
    record: TrajectoryRecord, arrays: Mapping[str, Numbers], mask_T: npt.NDArray[np.bool_], algorithm: AlgorithmConfig
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


def _differs(found: Numbers, expected: npt.NDArray[np.floating]) -> npt.NDArray[np.bool_]:
    differs: npt.NDArray[np.bool_] = ~np.isclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE)
    return differs


def naive_weights(algorithm: AlgorithmConfig, old: Numbers, rollout: Numbers) -> Numbers | None:
    """Return the weights of a built-in importance correction for one sequence; None for others."""
    choice = algorithm.importance_correction
    if choice is None or choice.target not in (tis, icepop, mis):
        return None
    bounds = choice.options.model_dump()
    ratios = [math.exp(min(_LIMIT, max(-_LIMIT, each))) for each in old - rollout]
    if choice.target is tis:
        return np.array([min(ratio, bounds["high"]) for ratio in ratios])
    if choice.target is mis:
        total = math.exp(min(_LIMIT, max(-_LIMIT, sum(math.log(ratio) for ratio in ratios))))
        return np.array([total if bounds["low"] <= total <= bounds["high"] else 0.0] * len(ratios))
    return np.array([ratio if bounds["low"] <= ratio <= bounds["high"] else 0.0 for ratio in ratios])


def naive_clipped(algorithm: AlgorithmConfig, log_ratios: Numbers, advantages: Numbers) -> Numbers | None:
    """Return 1 for each token that a built-in loss clips and 0 for others; None for losses without clipping.

    NaN marks tokens so close to a bound that rounding decides.
    """
    loss = algorithm.policy_loss
    if loss.target not in CLIPPING_LOSSES:
        return None
    options = {"dual_clip": None} | loss.options.model_dump()
    if loss.target is gspo_policy_loss:
        log_ratios = np.full(len(log_ratios), log_ratios.mean() if len(log_ratios) else 0.0)
    low, high, dual = 1 - options["clip_low"], 1 + options["clip_high"], options["dual_clip"]
    flags = []
    for log_ratio, advantage in zip(log_ratios, advantages, strict=True):
        ratio = math.exp(min(_LIMIT, max(-_LIMIT, log_ratio)))
        bounds = [low, high, *([dual] if dual is not None else [])]
        if any(abs(ratio - bound) <= _EDGE * max(1.0, bound) for bound in bounds):
            flags.append(math.nan)
        elif loss.target is cispo_policy_loss:
            flags.append(float(not low <= ratio <= high))
        else:
            above, below = advantage > 0 and ratio > high, advantage < 0 and ratio < low
            flags.append(float(above or below or (dual is not None and advantage < 0 and ratio > dual)))
    return np.array(flags)
