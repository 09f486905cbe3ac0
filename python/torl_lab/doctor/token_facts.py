"""The facts of the tokens that the learner recorded: engine against learner, staleness, calls that were not opened."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from torl.base.types import UpdateNumbers
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.tokens import TokenKey
from torl_lab.doctor.facts import address_of

ENGINE_SURE: Final = 0.5
"""Probability from which the engine is sure of a token (martingale's confident disagreement)."""
DISAGREEMENT: Final = 2.0
"""Nats by which the learner's log-probability of such a token is lower (martingale)."""
_EVIDENCE: Final = 3
_MAX_LOG_RATIO: Final = 20.0  # as the losses clamp ratios
_EQUAL: Final = 1e-6  # nats between two computations of the same log-probability

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """The facts of the tokens of a step that the learner recorded.

    Attributes:
        compared: Number of tokens that the trained policy itself sampled, by the version that the record names.
        gap: Mean |learner logprob - engine logprob| of these tokens, in nats.
        factor: Mean of exp(|learner logprob - engine logprob|).
        kl: Estimated KL divergence (k3), in nats per token.
        confident: Number of these tokens of which the engine is sure and the learner is not.
        depth: Correlation of the gap with the position in the response.
        lagged: Number of tokens that older versions sampled.
        effective: Effective sample size over the lagged tokens, as a fraction.
        call_probability: Mean probability of the token that opens a call, at tokens that open none. None if unknown.
        clipped: Fractions of clipped tokens with a positive and with a negative advantage. None if unknown.
        disagreeing: Addresses with most confident disagreement, then with the largest gap.
        calling: Addresses with the largest `call_probability`.
        replica_gaps: The mean gap by replica of the engine.
        mismatched: Addresses of trajectories with a loss on more or fewer tokens than were sampled.
    """

    compared: int
    gap: float
    factor: float
    kl: float
    confident: int
    depth: float
    lagged: int
    effective: float
    call_probability: float | None
    clipped: tuple[float, float] | None
    disagreeing: tuple[str, ...]
    calling: tuple[str, ...]
    replica_gaps: Mapping[int, float]
    mismatched: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The recorded tokens (K,) of one trajectory."""

    address: str
    difference: Numbers  # learner minus engine, before the first optimizer step
    engine: Numbers
    current: npt.NDArray[np.bool_]  # sampled by the trained policy
    call_probability: Numbers  # at tokens that do not open a call; empty if unknown
    clipped: npt.NDArray[np.bool_] | None
    advantages: Numbers
    replica: int

    @classmethod
    def read(cls, address: str, record: TrajectoryRecord, arrays: Mapping[str, npt.NDArray[np.float32]]) -> Self | None:
        """Join the learner's numbers with the record; None if they do not cover exactly the sampled tokens."""
        trajectory = record.trajectory
        mask = trajectory.loss_mask_T
        learner = arrays.get("old_logprobs", arrays["learner_logprobs"]).astype(np.float64)
        if len(learner) != int(mask.sum()):
            return None
        engine = trajectory.rollout_logprobs_T[mask].astype(np.float64)
        opening = arrays.get("call_logprobs", np.empty(0))
        closed = opening[np.abs(opening - learner) > _EQUAL] if len(opening) else opening
        clipped = arrays.get("clipped")
        return cls(
            address,
            learner - engine,
            engine,
            trajectory.policy_versions_T[mask] == record.step,
            np.exp(closed).astype(np.float64),
            None if clipped is None else clipped > 0,
            arrays["advantages"].astype(np.float64),
            trajectory.turns[0].replica if trajectory.turns else 0,
        )

    @property
    def gaps(self) -> Numbers:
        return np.abs(self.difference[self.current])

    @property
    def confident(self) -> int:
        sure = self.engine >= np.log(ENGINE_SURE)
        return int((self.current & sure & (self.difference < -DISAGREEMENT)).sum())


def token_facts(
    step: int, records: Sequence[TrajectoryRecord], numbers: Mapping[TokenKey, UpdateNumbers]
) -> TokenFacts | None:
    """Return the facts of the recorded tokens of a step; None without any."""
    found: list[_Recorded] = []
    mismatched = []
    for address, record, arrays in _recorded(step, records, numbers):
        if joined := _Recorded.read(address, record, arrays):
            found.append(joined)
        elif len(arrays["learner_logprobs"]):  # a mask leaves none
            mismatched.append(address)
    if not found and not mismatched:
        return None
    signed = _joined(each.difference[each.current] for each in found).clip(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    gaps = np.abs(signed)
    lags = _joined(each.difference[~each.current] for each in found).clip(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    places = _joined(np.flatnonzero(each.current) for each in found)
    calls = _joined(each.call_probability for each in found)
    weights = np.exp(lags)
    return TokenFacts(
        compared=len(gaps),
        gap=_mean(gaps, 0.0),
        factor=_mean(np.exp(gaps), 1.0),
        kl=_mean(np.expm1(signed) - signed, 0.0),
        confident=sum(each.confident for each in found),
        depth=_correlation(places, gaps),
        lagged=len(lags),
        effective=float(weights.sum() ** 2 / (len(weights) * (weights**2).sum())) if len(lags) else 1.0,
        call_probability=_mean(calls, 0.0) if len(calls) else None,
        clipped=_clipped(found),
        disagreeing=_worst(found, lambda each: (each.confident, _mean(each.gaps, 0.0))),
        calling=_worst(found, lambda each: _mean(each.call_probability, 0.0)),
        replica_gaps={
            replica: _mean(np.concatenate([each.gaps for each in found if each.replica == replica]), 0.0)
            for replica in sorted({each.replica for each in found})
        },
        mismatched=tuple(mismatched),
    )


def _recorded(
    step: int, records: Sequence[TrajectoryRecord], numbers: Mapping[TokenKey, UpdateNumbers]
) -> Iterator[tuple[str, TrajectoryRecord, Mapping[str, npt.NDArray[np.float32]]]]:
    for line, record in enumerate(records, start=1):
        for branch, each in enumerate(record.episode_trajectories):
            key = TokenKey(each.trajectory.group_id, each.trajectory.sample_index, branch)
            if key in numbers:
                yield address_of(step, line), each, numbers[key].arrays


def _joined(arrays: Iterable[npt.NDArray[Any]]) -> Numbers:
    return np.concatenate([np.empty(0), *arrays])


def _clipped(found: Sequence[_Recorded]) -> tuple[float, float] | None:
    known = [(each.clipped, each.advantages) for each in found if each.clipped is not None]
    if not known:
        return None
    clipped, advantages = (np.concatenate(arrays) for arrays in zip(*known, strict=True))
    return _mean(clipped[advantages > 0], 0.0), _mean(clipped[advantages < 0], 0.0)


def _worst(found: Sequence[_Recorded], key: Callable[[_Recorded], object]) -> tuple[str, ...]:
    ordered = sorted(found, key=key, reverse=True)  # type: ignore[arg-type]
    return tuple(each.address for each in ordered[:_EVIDENCE])


def _mean(values: npt.NDArray[Any], default: float) -> float:
    return float(values.mean(dtype=np.float64)) if len(values) else default


def _correlation(x: npt.NDArray[Any], y: Numbers) -> float:
    """Return the correlation, or 0 if a value is constant."""
    if len(x) < 2 or not x.std() or not y.std():
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])
