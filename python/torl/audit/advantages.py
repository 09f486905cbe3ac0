"""The advantages of a step's batch, worked out again from the records."""

import math
import statistics
from collections.abc import Sequence

import numpy as np

from torl.algorithms.advantages import Rewards
from torl.audit.check import Check, place_of
from torl.audit.formulas import Numbers, Payment, slow_advantages, slow_kl, slow_rewards, slow_whitened
from torl.config import AlgorithmConfig, TrainConfig
from torl.records.rows import TrajectoryRecord
from torl.training.silencing import silenced
from torl.types import Float32Array, Scored

_TOLERANCE = 2e-5  # float32, beside a deviation that may be small


def check_advantages(check: Check, records: Sequence[TrajectoryRecord], config: TrainConfig) -> None:
    """Compare the advantages of a step's batch, which are in its records; token by token where a record holds them so.

    Args:
        check: to count in.
        records: of a step.
        config: of the run.
    """
    if config.control.shuffle_rewards:
        check.note = "the records do not hold the shuffled rewards"
        return
    algorithm = config.algorithm
    batch = [record for record in records if record.advantage is not None]
    scored = [Scored(record.trajectory, record.grade, record.grade.reward) for record in batch]
    quiet = frozenset().union(*silenced(scored, config.selection).values(), _improbable(batch, algorithm))
    uncounted = frozenset[int]() if config.selection.silence_after_advantages else quiet
    payment = _payment(batch, uncounted, algorithm)
    expected = slow_advantages(algorithm, payment)
    if expected is None:
        check.note = f"estimator {algorithm.estimator.name} is not torl's own: it was asked again"
        expected = _asked_again(batch, uncounted, payment, algorithm)
    expected = [[] if index in quiet else again for index, again in enumerate(expected)]
    for index, (record, again) in enumerate(zip(batch, expected, strict=True)):
        assert record.advantage is not None
        pairs = [(record.advantage, statistics.fmean(again) if again else 0.0)]
        if "advantages" in record.token_numbers:
            pairs += zip(_sampled(record, "advantages", index in quiet), again, strict=True)
        gap = max(abs(one - other) for one, other in pairs)
        right = all(abs(one - other) <= _TOLERANCE * max(1.0, abs(other)) for one, other in pairs)
        check.add(right, f"{place_of(record)}: advantage {record.advantage}, again {pairs[0][1]}", gap)


def _improbable(batch: Sequence[TrajectoryRecord], algorithm: AlgorithmConfig) -> set[int]:
    """Those that the reference policy finds too improbable; of one that was silenced before, the numbers are zeros."""
    most = algorithm.max_reference_perplexity
    if most is None:
        return set()
    means = [statistics.fmean(_sampled(record, "ref_logprobs") or [0.0]) for record in batch]
    return {index for index, mean in enumerate(means) if math.exp(-mean) > most}


def _payment(batch: Sequence[TrajectoryRecord], quiet: frozenset[int], algorithm: AlgorithmConfig) -> Payment:
    """What the batch was paid; trajectories in `quiet` have no token with a loss."""
    token_rewards = [[] if index in quiet else _token_rewards(record, algorithm) for index, record in enumerate(batch)]
    values = None
    if algorithm.needs_critic:
        values = [_sampled(record, "values", index in quiet) for index, record in enumerate(batch)]
    return Payment(
        # A silenced trajectory has no token that can be paid for its turns: their pay comes at the end.
        rewards=[record.grade.total if index in quiet else record.grade.reward for index, record in enumerate(batch)],
        groups=[record.trajectory.group for record in batch],
        token_rewards=token_rewards,
        values=values,
    )


def _token_rewards(record: TrajectoryRecord, algorithm: AlgorithmConfig) -> Numbers:
    """What is paid at each sampled token beside the reward at the end: the turns, and the distance from a reference."""
    paid = [0.0] * int(record.trajectory.loss_mask_T.sum())
    if algorithm.penalizes_rewards:
        logprobs = (_sampled(record, name) for name in ("old_logprobs", "ref_logprobs"))
        kl = algorithm.kl
        paid = [-kl.coefficient * slow_kl(kl.estimator, *pair) for pair in zip(*logprobs, strict=True)]
    tokens = 0
    if record.grade.turn_rewards:
        for turn, reward in zip(record.trajectory.turns, record.grade.turn_rewards, strict=True):
            tokens += turn.stop - turn.start
            paid[tokens - 1] += reward
    return paid


def _sampled(record: TrajectoryRecord, name: str, quiet: bool = False) -> Numbers:
    """A number of each sampled token that carries a loss."""
    numbers: Numbers = [] if quiet else record.token_numbers[name][record.trajectory.loss_mask_T].tolist()
    return numbers


def _asked_again(
    batch: Sequence[TrajectoryRecord], quiet: frozenset[int], payment: Payment, algorithm: AlgorithmConfig
) -> list[Numbers]:
    """What the run's own estimator gives for arrays that are laid out as in training, prompts included."""
    lengths = [len(record.trajectory.prompt.token_ids) + len(record.trajectory) for record in batch]
    masks = [np.zeros(length, np.bool_) for length in lengths]
    for index, (mask, record) in enumerate(zip(masks, batch, strict=True)):
        if index not in quiet:
            mask[len(mask) - len(record.trajectory) :] = record.trajectory.loss_mask_T
    mask_M = np.concatenate([np.zeros(0, np.bool_), *masks])

    def on_tokens(numbers: Sequence[Numbers]) -> Float32Array:
        values_M = np.zeros(len(mask_M), np.float32)
        values_M[mask_M] = [number for row in numbers for number in row]
        return values_M

    paid_by_token = algorithm.penalizes_rewards or any(record.grade.turn_rewards for record in batch)
    estimate = algorithm.estimator.function()(
        Rewards(
            rewards_N=np.array(slow_rewards(algorithm, payment.rewards), np.float64),
            groups_N=payment.groups,
            lengths_N=np.array(lengths, np.int64),
            mask_M=mask_M,
            token_rewards_M=on_tokens(payment.token_rewards) if paid_by_token else None,
            values_M=None if payment.values is None else on_tokens(payment.values),
        )
    )
    rows = np.split(estimate.advantages_M, np.cumsum(lengths)[:-1]) if lengths else []
    expected: list[Numbers] = [row[mask].tolist() for row, mask in zip(rows, masks, strict=True)]
    return slow_whitened(expected) if algorithm.normalize_advantages else expected
