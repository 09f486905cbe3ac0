"""The controller's part of a training step: annotate samples, pack mini-batches, take optimizer steps. No torch."""

import hashlib
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Literal

import numpy as np

from torl.base.seeds import derive_seed
from torl.base.types import Float32Array, TrainingSample, UpdateNumbers
from torl.learner.batch import (
    Batch,
    carries_advantage,
    has_loss,
    indices_by_episode,
    pack_batch,
    scatter_to_samples,
    with_batch_values,
)
from torl.learner.imitation import count_imitated, without_imitation
from torl.learner.messages import (
    Annotate,
    Annotation,
    LearnerSetup,
    PolicyUpdate,
    RequireFinite,
    UpdateCritic,
    UpdatePolicy,
)
from torl.learner.ranks import RankGroup
from torl.learner.rows import PackedRow
from torl.run.config import AlgorithmConfig, LearnerConfig

# Metrics that are summed over optimizer steps. Metrics that end in `_max` are maximized, all others averaged.
_SUMS = {"update_seconds", "tokens", "sampled_tokens", "imitated_tokens", "samples", "rows"}


def required_annotations(algorithm: AlgorithmConfig) -> list[Annotation]:
    """Return the annotations that an algorithm requires."""
    required: list[Annotation] = []
    if algorithm.needs_old_logprobs:
        required.append("old_logprobs")
    if algorithm.needs_reference:
        required.append("ref_logprobs")
    if algorithm.requirements.entropies:
        required.append("entropies")
    if algorithm.requirements.collision_probs:
        required.append("collision_probs")
    if algorithm.needs_critic:
        required.append("values")
    return required


async def annotate(
    group: RankGroup,
    samples: Sequence[TrainingSample],
    annotations: Sequence[Annotation],
    learner: LearnerConfig,
    step: int = 0,
    token: int | None = None,
) -> list[TrainingSample]:
    """Add annotations to the sampled tokens. They are 0 on other tokens, and if no sample has a sampled token.

    With `token`, log-probabilities are those of this token at the position of each sampled token.
    """
    if not annotations or not has_loss(samples):
        return [
            _annotated(sample, {name: np.zeros(len(sample), np.float32) for name in annotations}) for sample in samples
        ]
    if "ref_logprobs" in annotations and any(sample.reference_sample is not None for sample in samples):
        others = [name for name in annotations if name != "ref_logprobs"]
        behind = await annotate(group, list(map(_for_reference, samples)), ["ref_logprobs"], learner, step)
        return list(map(_with_reference, await annotate(group, samples, others, learner, step), behind))
    ranks_per_row = learner.sequence_parallel
    batch = _pack(group, learner, without_imitation(samples))
    by_rank = [[row if token is None else _with_target(row, token) for row in rows] for rows in batch.rows]
    replies = await group.call([Annotate(tuple(rows), tuple(annotations), step) for rows in by_rank])
    replies = replies[::ranks_per_row]  # ranks that share rows return the same
    rows = [row for rank_rows in batch.rows[::ranks_per_row] for row in rank_rows]
    arrays_by_name = {
        name: scatter_to_samples(samples, rows, [values for reply in replies for values in reply[name]])
        for name in annotations
    }
    return [
        _annotated(sample, {name: arrays[index] for name, arrays in arrays_by_name.items()})
        for index, sample in enumerate(samples)
    ]


def _pack(group: RankGroup, learner: LearnerConfig, samples: Sequence[TrainingSample], **options: Any) -> Batch:
    """Pack samples for the ranks of a group."""
    return pack_batch(
        samples,
        max_row_tokens=learner.resolved_row_tokens,
        ranks=len(group.ranks),
        ranks_per_row=learner.sequence_parallel,
        share_prompts=group.shares_prompts,
        **options,
    )


def _with_target(row: PackedRow, token: int) -> PackedRow:
    return replace(row, target_K=np.full_like(row.target_K, token))


def _annotated(sample: TrainingSample, arrays: Mapping[Annotation, Float32Array]) -> TrainingSample:
    return replace(sample, **dict[str, Any](arrays))  # type: ignore[arg-type]


def _for_reference(sample: TrainingSample) -> TrainingSample:
    """Return the sample that the reference model sees, masked if the sample is."""
    seen = sample if sample.reference_sample is None else sample.reference_sample
    mask = seen.loss_mask if sample.loss_mask.any() else np.zeros_like(seen.loss_mask)
    return TrainingSample(seen.token_ids, mask, seen.rollout_logprobs)


def _with_reference(sample: TrainingSample, seen: TrainingSample) -> TrainingSample:
    """Add the reference model's log-probabilities of the sample that it saw, which has the same sampled tokens."""
    assert seen.ref_logprobs is not None
    ref_logprobs = np.zeros(len(sample), np.float32)
    ref_logprobs[sample.loss_mask] = seen.ref_logprobs[seen.loss_mask]
    return replace(sample, ref_logprobs=ref_logprobs, reference_sample=None)


async def take_steps(
    group: RankGroup,
    setup: LearnerSetup,
    samples: Sequence[TrainingSample],
    step: int,
    recorded: dict[int, UpdateNumbers | None] | None = None,
) -> dict[str, float]:
    """Take the critic's optimizer steps, then the policy's, and return their metrics; see `Learner.update`."""
    start, setup = time.perf_counter(), setup.at_step(step)
    metrics: dict[str, float] = {"updates": 0}
    if setup.algorithm.needs_critic:
        metrics |= await _train_critic(group, setup, samples, step)
    if not setup.algorithm.needs_critic or step >= setup.critic.pretrain_steps:
        metrics |= await _train_policy(group, setup, samples, step, {} if recorded is None else recorded)
    return metrics | {"seconds": time.perf_counter() - start}


async def _train_policy(
    group: RankGroup,
    setup: LearnerSetup,
    samples: Sequence[TrainingSample],
    step: int,
    recorded: dict[int, UpdateNumbers | None],
) -> dict[str, float]:
    algorithm, ranks_per_row = setup.algorithm, setup.learner.sequence_parallel
    _require(samples, ["advantages", *(each for each in required_annotations(algorithm) if each != "values")])
    reports = []
    parts = mini_batches(samples, algorithm.epochs, algorithm.mini_batches, (setup.seed, step, "policy"))
    for number, part in enumerate(parts):
        chosen = with_batch_values(
            [samples[index] for index in part], algorithm, derive_seed(setup.seed, step, "batch values", number)
        )
        learns = has_loss(chosen) if algorithm.learns_without_advantage else any(map(carries_advantage, chosen))
        if not learns and not any(map(count_imitated, chosen)):
            continue
        batch = _pack(
            group,
            setup.learner,
            chosen,
            aggregation=algorithm.aggregation.bind(),
            skip_zero_advantage=not algorithm.learns_without_advantage,
            policy_version=step,
        )
        wanted = frozenset(place for place, index in enumerate(part) if index in recorded)
        requests = [UpdatePolicy(rows, batch.sampled_tokens, step, wanted) for rows in batch.rows]
        replies: list[PolicyUpdate] = await group.call(requests)
        reports.append(_report(replies[0].metrics, batch, ranks_per_row))
        for reply in replies[::ranks_per_row]:  # ranks that share rows return the same
            recorded |= {part[place]: UpdateNumbers(number, arrays) for place, arrays in reply.tokens.items()}
    if reports:
        await _require_finite(group, batch, "policy", step)
    metrics = combine_reports(reports) | {"updates": len(reports)}
    if on_policy := metrics.get("on_policy_fraction"):
        metrics["logprob_gap_on_policy"] /= on_policy  # ranks divide sums by the number of all sampled tokens
    else:
        metrics.pop("logprob_gap_on_policy", None)
    return metrics


async def _train_critic(
    group: RankGroup, setup: LearnerSetup, samples: Sequence[TrainingSample], step: int
) -> dict[str, float]:
    critic = setup.critic
    _require(samples, ["values", "returns"])
    reports = []
    for part in mini_batches(samples, critic.epochs, critic.mini_batches, (setup.seed, step, "critic")):
        chosen = [samples[index] for index in part]
        if has_loss(chosen):
            ranks_per_row = setup.learner.sequence_parallel
            batch = _pack(group, setup.learner, without_imitation(chosen))
            replies = await group.call([UpdateCritic(rows, batch.sampled_tokens, step) for rows in batch.rows])
            reports.append(_report(replies[0], batch, ranks_per_row))
    if not reports:
        return {}
    await _require_finite(group, batch, "critic", step)
    metrics = {f"critic_{name}": value for name, value in combine_reports(reports).items()}
    return metrics | {"critic_explained_variance": explained_variance(samples)}


def _report(metrics: Mapping[str, float], batch: Batch, ranks_per_row: int) -> dict[str, float]:
    """Return the metrics of an optimizer step with the counts of its batch."""
    return {
        **metrics,
        "tokens": batch.tokens,
        "sampled_tokens": batch.sampled_tokens,
        **({"imitated_tokens": batch.imitated_tokens} if batch.imitated_tokens else {}),
        "samples": batch.samples,
        "rows": sum(len(row.samples) > 0 for rows in batch.rows[::ranks_per_row] for row in rows),
    }


async def _require_finite(group: RankGroup, batch: Batch, model: Literal["policy", "critic"], step: int) -> None:
    """Raise `DivergedError` unless a model is finite after its last optimizer step, on one short row of each rank."""
    await group.call([RequireFinite(_shortest(rows), model, step) for rows in batch.rows])


def _shortest(rows: Sequence[PackedRow]) -> PackedRow:
    return min((row for row in rows if row.samples), key=len, default=rows[0])


def _require(samples: Sequence[TrainingSample], names: Sequence[str]) -> None:
    """Raise ValueError if a sample lacks an array, which an update would take for zeros."""
    for index, sample in enumerate(samples):
        for name in names:
            if getattr(sample, name) is None:
                raise ValueError(
                    f"sample {index} has no {name}: see Learner.annotate and torl.training.samples.with_advantages"
                )


def mini_batches(samples: Sequence[TrainingSample], epochs: int, parts: int, key: Hashable) -> list[list[int]]:
    """Return the sample indices of each optimizer step, in ascending order.

    Each epoch contains every sample once. The samples of an episode stay together.

    Args:
        samples: Samples of a training step.
        epochs: Number of passes over the samples.
        parts: Number of mini-batches in an epoch, at most one for each episode. Their numbers of episodes differ by at
            most one.
        key: Key that determines the order of episodes, together with the epoch.
    """
    episodes = indices_by_episode(samples)
    parts = min(parts, len(episodes))
    batches = []
    for epoch in range(epochs):
        digest = hashlib.blake2b(repr((key, epoch)).encode(), digest_size=8).digest()
        order = np.random.default_rng(int.from_bytes(digest)).permutation(len(episodes))
        for part in np.array_split(order, parts) if parts else []:
            batches.append(sorted(index for episode in part for index in episodes[episode]))
    return batches


def combine_reports(reports: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Combine the metrics of several optimizer steps: sums, maxima or means. Without a step, return an empty dict."""
    combined: dict[str, float] = {}
    for name in dict.fromkeys(chain(*reports)):
        values = [report[name] for report in reports if name in report]
        if name.endswith("_max"):
            combined[name] = max(values)
        else:
            combined[name] = sum(values) if name in _SUMS else sum(values) / len(values)
    return combined


def explained_variance(samples: Sequence[TrainingSample]) -> float:
    """Return 1 - var(returns - values) / var(returns) over all sampled tokens; 1 for a perfect critic."""
    returns = np.concatenate([sample.returns[sample.loss_mask] for sample in samples if sample.returns is not None])
    values = np.concatenate([sample.values[sample.loss_mask] for sample in samples if sample.values is not None])
    variance = float(returns.var(dtype=np.float64))
    return 1 - float((returns - values).var(dtype=np.float64)) / variance if variance > 0 else 0.0
