"""Advantages by the formulas written out, one number at a time."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from torl.algorithms import advantages
from torl.config import AlgorithmConfig

Numbers = list[float]
"""Of the sampled tokens of one trajectory that carry a loss, in their order."""


@dataclass(frozen=True, slots=True)
class BatchRewards:
    """What the trajectories of a batch were paid; each list has one member for each of them."""

    rewards: Sequence[float]  # arrives at the last sampled token
    groups: Sequence[Hashable]  # equal for those that are compared with each other
    token_rewards: Sequence[Numbers]  # paid at single tokens besides; as many as there are tokens
    values: Sequence[Numbers] | None = None  # the critic's, before each token, where there is one
    turns: Sequence[Sequence[int]] = ()  # how many tokens each turn has

    @property
    def totals(self) -> Numbers:
        """All that each was paid."""
        return [reward + sum(extra) for reward, extra in zip(self.rewards, self.token_rewards, strict=True)]

    def group_members(self, numbers: Sequence[float]) -> list[Numbers]:
        """For each trajectory the numbers of all members of its group."""
        members: defaultdict[Hashable, Numbers] = defaultdict(list)
        for number, group in zip(numbers, self.groups, strict=True):
            members[group].append(number)
        return [members[group] for group in self.groups]

    def broadcast_to_tokens(self, numbers: Sequence[float]) -> list[Numbers]:
        """One number for each trajectory, on all its tokens."""
        return [[number] * len(extra) for number, extra in zip(numbers, self.token_rewards, strict=True)]


def naive_advantages(algorithm: AlgorithmConfig, payment: BatchRewards) -> list[Numbers] | None:
    """The advantage of each sampled token of each trajectory of a batch; None if the estimator is not torl's own."""
    slow = NAIVE_ESTIMATORS.get(algorithm.estimator.target)
    if slow is None:
        return None
    payment = replace(payment, rewards=naive_rewards(algorithm, payment.rewards))
    advantages = slow(payment, **algorithm.estimator.options.model_dump())
    return naive_whitened(advantages) if algorithm.normalize_advantages else advantages


def naive_rewards(algorithm: AlgorithmConfig, rewards: Sequence[float]) -> Numbers:
    """The rewards as the estimator is given them."""
    if not algorithm.normalize_rewards:
        return list(rewards)
    if len(rewards) < 2:
        return [0.0] * len(rewards)
    mean, deviation = statistics.fmean(rewards), statistics.stdev(rewards)
    return [(reward - mean) / (deviation + 1e-6) for reward in rewards]


def naive_whitened(numbers: Sequence[Numbers]) -> list[Numbers]:
    """Brought to mean 0 and variance 1 over all tokens."""
    everything = [value for row in numbers for value in row]
    mean = statistics.fmean(everything) if everything else 0.0
    variance = statistics.variance(everything) if len(everything) > 1 else 0.0
    return [[(value - mean) / (variance + 1e-8) ** 0.5 for value in row] for row in numbers]


def naive_kl(estimator: str, old_logprob: float, ref_logprob: float) -> float:
    """Schulman's three, the log ratio within +-20."""
    x = min(max(ref_logprob - old_logprob, -20.0), 20.0)
    return {"k1": -x, "k2": x * x / 2, "k3": math.exp(x) - x - 1}[estimator]


def _grpo(payment: BatchRewards) -> list[Numbers]:
    totals = payment.totals
    groups = payment.group_members(totals)
    deviations = [statistics.stdev(own) if len(own) > 1 else 1.0 for own in groups]
    return payment.broadcast_to_tokens(
        [
            (total - _mean(own)) / (deviation + 1e-6)
            for total, own, deviation in zip(totals, groups, deviations, strict=True)
        ]
    )


def _dr_grpo(payment: BatchRewards) -> list[Numbers]:
    totals = payment.totals
    return payment.broadcast_to_tokens(
        [total - _mean(own) for total, own in zip(totals, payment.group_members(totals), strict=True)]
    )


def _rloo(payment: BatchRewards) -> list[Numbers]:
    totals = payment.totals
    others = [
        (sum(own) - total) / (len(own) - 1) if len(own) > 1 else 0.0
        for total, own in zip(totals, payment.group_members(totals), strict=True)
    ]
    return payment.broadcast_to_tokens([total - other for total, other in zip(totals, others, strict=True)])


def _gtpo(payment: BatchRewards, discount: float, baseline: str) -> list[Numbers]:
    """Each turn's sum over the turns from it to the last, compared with its peers."""
    peers: defaultdict[Hashable, Numbers] = defaultdict(list)
    compared: list[list[tuple[Hashable, float]]] = []
    rows = zip(payment.rewards, payment.token_rewards, payment.turns, payment.groups, strict=True)
    for reward, extra, turns, group in rows:
        paid = [sum(extra[sum(turns[:number]) : sum(turns[: number + 1])]) for number in range(len(turns))]
        paid[-1:] = [last + reward for last in paid[-1:]]
        compared.append([])
        for number in range(len(turns)):
            still = sum(pay * discount**distance for distance, pay in enumerate(paid[number:]))
            key = (group, number if baseline == "turn" else None)
            peers[key].append(still)
            compared[-1].append((key, still))

    def advantage(key: Hashable, still: float) -> float:
        deviation = statistics.stdev(peers[key]) if len(peers[key]) > 1 else 1.0
        return (still - _mean(peers[key])) / (deviation + 1e-6)

    return [
        [advantage(*own) for own, length in zip(row, turns, strict=True) for _ in range(length)]
        for row, turns in zip(compared, payment.turns, strict=True)
    ]


def _reinforce_plus_plus(payment: BatchRewards, discount: float) -> list[Numbers]:
    pairs = zip(payment.rewards, payment.token_rewards, strict=True)
    return naive_whitened([_returns(discount, reward, extra) for reward, extra in pairs])


def _reinforce_plus_plus_baseline(payment: BatchRewards, discount: float) -> list[Numbers]:
    groups = payment.group_members(payment.rewards)
    centered = [reward - _mean(own) for reward, own in zip(payment.rewards, groups, strict=True)]
    return _reinforce_plus_plus(replace(payment, rewards=centered), discount)


def _ppo(payment: BatchRewards, discount: float, gae_lambda: float) -> list[Numbers]:
    """The temporal-difference errors, discounted by both."""
    assert payment.values is not None
    advantages = []
    for reward, extra, values in zip(payment.rewards, payment.token_rewards, payment.values, strict=True):
        following = [*values[1:], 0.0]
        errors = [paid + discount * after - value for paid, after, value in zip(extra, following, values, strict=True)]
        advantages.append(_returns(discount * gae_lambda, reward, errors))
    return advantages


def _returns(discount: float, reward: float, token_rewards: Sequence[float]) -> Numbers:
    """What is still to come at each token; the reward comes with the last."""
    arriving = [*token_rewards]
    if arriving:
        arriving[-1] += reward
    for place in range(len(arriving) - 2, -1, -1):
        arriving[place] += discount * arriving[place + 1]
    return arriving


def _mean(own: Sequence[float]) -> float:
    """The mean of a group; 0 for one alone, which has nothing to be compared with."""
    return statistics.fmean(own) if len(own) > 1 else 0.0


NAIVE_ESTIMATORS: Mapping[Callable[..., Any], Callable[..., list[Numbers]]] = MappingProxyType(
    {
        advantages.grpo: _grpo,
        advantages.dr_grpo: _dr_grpo,
        advantages.rloo: _rloo,
        advantages.gtpo: _gtpo,
        advantages.reinforce_plus_plus: _reinforce_plus_plus,
        advantages.reinforce_plus_plus_baseline: _reinforce_plus_plus_baseline,
        advantages.ppo: _ppo,
    }
)
"""The slow twin of each of torl's own estimators."""
