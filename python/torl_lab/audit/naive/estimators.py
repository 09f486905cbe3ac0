"""Naive implementations of the advantage estimators, one number at a time."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from torl.run.config import AlgorithmConfig
from torl_lab.audit.naive import location_of

Numbers = list[float]
"""One number for each token of a trajectory with a loss, in order."""


@dataclass(frozen=True, slots=True)
class BatchRewards:
    """The rewards of a batch. Each sequence has one item for each trajectory."""

    rewards: Sequence[float]
    """Rewards at the last sampled token."""
    groups: Sequence[Hashable]
    """Group keys. Trajectories with the same key are compared with each other."""
    token_rewards: Sequence[Numbers]
    """Additional rewards, one for each token."""
    values: Sequence[Numbers] | None = None
    """Values of the critic before each token, if the estimator has one."""
    turns: Sequence[Sequence[int]] = ()
    """Numbers of tokens of the turns."""
    masked_rewards: Sequence[float] = ()
    """Sums of the additional rewards of masked tokens; empty for zeros."""

    @property
    def finals(self) -> Numbers:
        """Rewards at the end of each trajectory, with those of its masked tokens."""
        masked = self.masked_rewards or [0.0] * len(self.rewards)
        return [reward + extra for reward, extra in zip(self.rewards, masked, strict=True)]

    @property
    def totals(self) -> Numbers:
        """Sums of the rewards of each trajectory."""
        return [reward + sum(extra) for reward, extra in zip(self.finals, self.token_rewards, strict=True)]

    def group_members(self, numbers: Sequence[float]) -> list[Numbers]:
        """Return for each trajectory the numbers of all members of its group."""
        members: defaultdict[Hashable, Numbers] = defaultdict(list)
        for number, group in zip(numbers, self.groups, strict=True):
            members[group].append(number)
        return [members[group] for group in self.groups]

    def broadcast_to_tokens(self, numbers: Sequence[float]) -> list[Numbers]:
        """Repeat the number of each trajectory for all its tokens."""
        return [[number] * len(extra) for number, extra in zip(numbers, self.token_rewards, strict=True)]


def naive_advantages(algorithm: AlgorithmConfig, batch: BatchRewards) -> list[Numbers] | None:
    """Return the advantage of each token of a batch, or None if the estimator is not one of torl's."""
    estimate = NAIVE_ESTIMATORS.get(location_of(algorithm.estimator.target))
    if estimate is None:
        return None
    batch = replace(batch, rewards=naive_rewards(algorithm, batch.rewards))
    advantages = estimate(batch, **algorithm.estimator.options.model_dump())
    return naive_whitened(advantages) if algorithm.normalize_advantages else advantages


def naive_rewards(algorithm: AlgorithmConfig, rewards: Sequence[float]) -> Numbers:
    """Return the rewards that the estimator receives, normalized if configured."""
    if not algorithm.normalize_rewards:
        return list(rewards)
    if len(rewards) < 2:
        return [0.0] * len(rewards)
    mean, deviation = statistics.fmean(rewards), statistics.stdev(rewards)
    return [(reward - mean) / (deviation + 1e-6) for reward in rewards]


def naive_whitened(numbers: Sequence[Numbers]) -> list[Numbers]:
    """Normalize to mean 0 and variance 1 over all tokens."""
    everything = [value for row in numbers for value in row]
    mean = statistics.fmean(everything) if everything else 0.0
    variance = statistics.variance(everything) if len(everything) > 1 else 0.0
    return [[(value - mean) / (variance + 1e-8) ** 0.5 for value in row] for row in numbers]


def _grpo(batch: BatchRewards) -> list[Numbers]:
    totals = batch.totals
    groups = batch.group_members(totals)
    deviations = [statistics.stdev(group) if len(group) > 1 else 1.0 for group in groups]
    return batch.broadcast_to_tokens(
        [
            (total - _mean(group)) / (deviation + 1e-6)
            for total, group, deviation in zip(totals, groups, deviations, strict=True)
        ]
    )


def _maxrl(batch: BatchRewards) -> list[Numbers]:
    totals = batch.totals
    means = [statistics.fmean(group) if len(group) > 1 else 0.0 for group in batch.group_members(totals)]
    return batch.broadcast_to_tokens(
        [(total - mean) / mean if mean > 0 else 0.0 for total, mean in zip(totals, means, strict=True)]
    )


def _dr_grpo(batch: BatchRewards) -> list[Numbers]:
    totals = batch.totals
    return batch.broadcast_to_tokens(
        [total - _mean(group) for total, group in zip(totals, batch.group_members(totals), strict=True)]
    )


def _rloo(batch: BatchRewards) -> list[Numbers]:
    totals = batch.totals
    others = [
        (sum(group) - total) / (len(group) - 1) if len(group) > 1 else 0.0
        for total, group in zip(totals, batch.group_members(totals), strict=True)
    ]
    return batch.broadcast_to_tokens([total - other for total, other in zip(totals, others, strict=True)])


def _gtpo(batch: BatchRewards, discount: float, baseline: str) -> list[Numbers]:
    """Compare the discounted return of each turn with the returns of its peers."""
    peers: defaultdict[Hashable, Numbers] = defaultdict(list)
    compared: list[list[tuple[Hashable, float]]] = []
    rows = zip(batch.finals, batch.token_rewards, batch.turns, batch.groups, strict=True)
    for reward, extra, turns, group in rows:
        per_turn = [sum(extra[sum(turns[:number]) : sum(turns[: number + 1])]) for number in range(len(turns))]
        per_turn[-1:] = [last + reward for last in per_turn[-1:]]
        compared.append([])
        for number in range(len(turns)):
            value = sum(each * discount**distance for distance, each in enumerate(per_turn[number:]))
            key = (group, number if baseline == "turn" else None)
            peers[key].append(value)
            compared[-1].append((key, value))

    def advantage(key: Hashable, value: float) -> float:
        deviation = statistics.stdev(peers[key]) if len(peers[key]) > 1 else 1.0
        return (value - _mean(peers[key])) / (deviation + 1e-6)

    return [
        [advantage(*turn) for turn, length in zip(row, turns, strict=True) for _ in range(length)]
        for row, turns in zip(compared, batch.turns, strict=True)
    ]


def _reinforce_plus_plus(batch: BatchRewards, discount: float) -> list[Numbers]:
    pairs = zip(batch.rewards, batch.token_rewards, strict=True)
    return naive_whitened([_returns(discount, reward, extra) for reward, extra in pairs])


def _reinforce_plus_plus_baseline(batch: BatchRewards, discount: float) -> list[Numbers]:
    groups = batch.group_members(batch.rewards)
    centered = [reward - _mean(group) for reward, group in zip(batch.rewards, groups, strict=True)]
    return _reinforce_plus_plus(replace(batch, rewards=centered), discount)


def _ppo(batch: BatchRewards, discount: float, gae_lambda: float) -> list[Numbers]:
    """Sum the temporal-difference errors, discounted by `discount * gae_lambda`."""
    assert batch.values is not None
    advantages = []
    for reward, extra, values in zip(batch.rewards, batch.token_rewards, batch.values, strict=True):
        following = [*values[1:], 0.0]
        errors = [now + discount * after - value for now, after, value in zip(extra, following, values, strict=True)]
        advantages.append(_returns(discount * gae_lambda, reward, errors))
    return advantages


def _returns(discount: float, reward: float, token_rewards: Sequence[float]) -> Numbers:
    """Return the discounted return of each token. `reward` is added at the last token."""
    arriving = [*token_rewards]
    if arriving:
        arriving[-1] += reward
    for index in range(len(arriving) - 2, -1, -1):
        arriving[index] += discount * arriving[index + 1]
    return arriving


def _mean(group: Sequence[float]) -> float:
    """Return the mean of a group, or 0 for a group of one, which has no peers."""
    return statistics.fmean(group) if len(group) > 1 else 0.0


_GROUPS, _TOKENS = "torl.components.algorithms.reward_advantages", "torl.components.algorithms.token_advantages"
NAIVE_ESTIMATORS: Mapping[str, Callable[..., list[Numbers]]] = MappingProxyType(
    {
        f"{_GROUPS}:grpo": _grpo,
        f"{_GROUPS}:dr_grpo": _dr_grpo,
        f"{_GROUPS}:rloo": _rloo,
        f"{_GROUPS}:gtpo": _gtpo,
        f"{_TOKENS}:reinforce_plus_plus": _reinforce_plus_plus,
        f"{_TOKENS}:reinforce_plus_plus_baseline": _reinforce_plus_plus_baseline,
        f"{_TOKENS}:ppo": _ppo,
        "torl.components.algorithms.reward_advantages:maxrl": _maxrl,
    }
)
"""The formula of each of torl's estimators of rewards alone, by the place of its function."""
