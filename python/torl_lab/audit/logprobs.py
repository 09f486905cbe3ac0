"""The checks of log-probabilities, and of losses of fine-tuning, against plain transformers in float32."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from torl.base.errors import TorlError
from torl.base.types import BoolArray, Float32Array, TrainingSample
from torl.components.hub import resolve_model
from torl.run.config import FinetuneConfig
from torl.run.records import metric_names as names
from torl.run.records.files import EXPORT_DIRECTORY
from torl.run.records.rows import TrajectoryRecord
from torl.training.examples import Example
from torl.training.policy_versions import PolicyVersions, has_weights, load_model
from torl_lab.audit.checks import Check, place_of
from torl_lab.audit.exports import check_adapter, check_export
from torl_lab.audit.history import RunHistory

# Limits of the mean and the maximum |difference| to transformers, by the engine's dtype. Rounding reaches a third of
# them with thirty layers; an attention mask or a position that is off by one exceeds them by far.
LIMITS = {"float32": (5e-5, 1e-3), "bfloat16": (5e-2, 2.0)}
_EDGES = {"float32": 1e-4, "bfloat16": 5e-2}  # of the mass of a nucleus, by the engine's dtype
_OUTSIDE = 1e3  # difference of a token that the nucleus does not have
_MAX_LOGITS = 1 << 25  # of a batch, 128 MiB in float32; a single trajectory may have more


class Sample(NamedTuple):
    """Log-probabilities of a trajectory that are compared.

    Attributes:
        record: Record of the trajectory.
        logprobs_T: Recorded log-probabilities.
        mask_T: Tokens that are compared.
        temperature: Temperature of the log-probabilities.
        dtype: Precision that they were computed in.
        top_p: Nucleus that they belong to; 1 for the whole distribution.
        limit: Limit of |difference| of a token, if it is lower than that of the precision.
    """

    record: TrajectoryRecord
    logprobs_T: Float32Array
    mask_T: BoolArray
    temperature: float
    dtype: str
    top_p: float = 1.0
    limit: float = math.inf


def check_weights(
    logprobs: Check,
    export: Check,
    history: RunHistory,
    groups: Sequence[Mapping[int, Sequence[Sample]]],
    on_compared: Callable[[], None],
) -> list[float]:
    """Compare log-probabilities with plain transformers, and the exported model with the last checkpoint.

    `groups` are samples by the policy versions that they belong to. Return the differences of all tokens.
    """
    exported = history.directory / EXPORT_DIRECTORY
    has_export = history.finished and exported.is_dir() and has_weights(history.directory, history.steps)
    versions = {version for group in groups for version, samples in group.items() if samples}
    config = history.configs[-1][1]
    policies = PolicyVersions(history.directory, config)
    gaps: list[float] = []
    for version in sorted(versions | ({history.steps} if has_export else set())):
        if version > 0 and history.has_removed(version):
            logprobs.add_note(f"the run has removed the checkpoint of step {version} in the meantime")
            continue
        with logprobs.reading(f"policy version {version}"):
            policy = policies.load(version)
            for group in groups:
                gaps += _check_samples(
                    logprobs, policy, f"policy version {version}", group.get(version, ()), on_compared
                )
            if has_export and version == history.steps:
                check_export(export, policies.load(version, rounded=True), exported, config)
                check_adapter(export, policies.read(version), exported, config)
    if versions:
        logprobs.add_note(f"policy versions {', '.join(map(str, sorted(versions)))}")
    return gaps


def check_references(
    logprobs: Check, samples: Mapping[str, Sequence[Sample]], on_compared: Callable[[], None]
) -> list[float]:
    """Compare log-probabilities of reference models, by their paths, and return the differences of all tokens.

    A model that is not there any more is a note.
    """
    gaps: list[float] = []
    for path, compared in samples.items():
        try:
            directory = resolve_model(path)
        except TorlError as error:
            logprobs.add_note(f"reference model: {error}")
            continue
        with logprobs.reading(f"reference model {path}"):
            gaps += _check_samples(logprobs, load_model(directory), f"reference model {path}", compared, on_compared)
            logprobs.add_note(f"reference model {path}")
    return gaps


def _check_samples(
    check: Check, model: Any, name: str, samples: Sequence[Sample], on_compared: Callable[[], None]
) -> list[float]:
    """Compare samples with a model, and return the differences of all tokens."""
    gaps: defaultdict[str, list[float]] = defaultdict(list)
    for sample, difference in token_gaps(model, samples):
        worst = max(difference, default=0.0)
        example = f"{place_of(sample.record)}: a logprob differs by {worst:.2g} ({name})"
        check.add(worst <= min(LIMITS[sample.dtype][1], sample.limit), example, worst)
        gaps[sample.dtype] += difference
        on_compared()
    for dtype, per_token in gaps.items():
        if per_token and (mean := statistics.fmean(per_token)) > LIMITS[dtype][0]:
            check.add(False, f"{name}: logprobs differ by {mean:.2g} on average", mean)
    return [gap for per_token in gaps.values() for gap in per_token]


def token_gaps(policy: Any, samples: Sequence[Sample]) -> Iterator[tuple[Sample, list[float]]]:
    """Yield each sample with the distance of its tokens from transformers."""
    batch: list[Sample] = []
    for sample in sorted(samples, key=_tokens):
        if batch and (len(batch) + 1) * _tokens(sample) * policy.config.vocab_size > _MAX_LOGITS:
            yield from _gaps_of_batch(policy, batch)
            batch = []
        batch.append(sample)
    if batch:
        yield from _gaps_of_batch(policy, batch)


def _gaps_of_batch(policy: Any, batch: Sequence[Sample]) -> Iterator[tuple[Sample, list[float]]]:
    """Run one forward pass. Rows are padded on the right, which causal attention ignores."""
    import torch

    ids = torch.zeros(len(batch), max(map(_tokens, batch)), dtype=torch.long)
    for row, sample in zip(ids, batch, strict=True):
        trajectory = sample.record.trajectory
        tokens = [*trajectory.prompt.token_ids, *trajectory.token_ids_T.tolist()]
        row[: len(tokens)] = torch.tensor(tokens)
    temperatures = torch.tensor([sample.temperature for sample in batch])
    with torch.inference_mode():
        logits = policy(input_ids=ids, use_cache=False).logits[:, :-1].float() / temperatures[:, None, None]
        everything = torch.log_softmax(logits, -1)
    for row, targets, sample in zip(everything, ids[:, 1:], batch, strict=True):
        trajectory = sample.record.trajectory
        first = len(trajectory.prompt.token_ids) - 1  # a token is sampled from the logits of the token before it
        places = first + torch.from_numpy(np.flatnonzero(sample.mask_T))
        low, high = _expected(row[places], targets[places], sample)
        recorded = torch.from_numpy(sample.logprobs_T[sample.mask_T])
        yield sample, torch.maximum(low - recorded, recorded - high).clamp(min=0).tolist()


def _expected(logprobs: Any, targets: Any, sample: Sample) -> tuple[Any, Any]:
    """Return the bounds of the log-probabilities of tokens in the nucleus of a sample.

    They are equal unless rounding decides about the last token of the nucleus. A token outside of it is far from both.

    Args:
        logprobs: Log-probabilities of all tokens, shape (K, vocabulary).
        targets: Sampled tokens, shape (K,).
        sample: The sample.
    """

    own = logprobs.gather(-1, targets[:, None]).squeeze(-1)
    if sample.top_p >= 1:
        return own, own
    edge = _EDGES[sample.dtype]
    masses = logprobs.exp().sort(descending=True, dim=-1).values.cumsum(-1)
    last = masses.shape[-1] - 1
    low, high = (
        masses.gather(-1, (masses < bound).sum(-1, keepdim=True).clamp(max=last)).squeeze(-1)
        for bound in (sample.top_p + edge, sample.top_p - edge)
    )
    before = (logprobs.exp() * (logprobs > own[:, None])).sum(-1)  # of the tokens that are more probable
    outside = before > sample.top_p + edge
    distance = outside * _OUTSIDE
    return own - low.log() + distance, own - high.log() - distance


def _tokens(sample: Sample) -> int:
    return len(sample.record.trajectory.prompt.token_ids) + len(sample.record.trajectory)


_LOSS_LIMITS = {"float32": 1e-4, "bfloat16": 5e-2}
"""Limits of |difference| of a loss to plain transformers in float32, by the learner's dtype."""


def check_losses(
    check: Check,
    history: RunHistory,
    config: FinetuneConfig,
    batches: Mapping[int, Sequence[Example]],
    validation: Mapping[int, Sequence[Example]],
) -> None:
    """Compare losses of steps and validations with plain transformers, where the weights before them exist."""
    versions = [step for step in sorted({*batches, *validation}) if has_weights(history.directory, step)]
    policies = PolicyVersions(history.directory, config) if versions else None
    for version in versions:
        with check.reading(f"policy version {version}"):
            assert policies is not None
            policy = policies.load(version)
            rows = history.rows.steps.get(version, {}), history.rows.evaluations.get(version, {})
            examples = batches.get(version, ()), validation.get(version, ())
            for place, name, row, chosen in zip(_PLACES, _NAMES, rows, examples, strict=True):
                if not chosen or name not in row:
                    continue
                samples = [sample for example in chosen for sample in example.samples]
                expected, found = mean_loss(policy, samples, observations=name == names.LOSS), row[name]
                gap, place = abs(found - expected), place.format(version)
                right = gap <= _LOSS_LIMITS[config.learner.dtype]
                check.add(right, f"{place}: expected {expected:.6g}, found {found:.6g}", gap)
    check.add_note(f"losses of policy versions {', '.join(map(str, versions)) or 'none'}")


_PLACES, _NAMES = ("loss of step {}", "validation loss after step {}"), (names.LOSS, names.VALIDATION_LOSS)


def mean_loss(policy: Any, samples: Sequence[TrainingSample], *, observations: bool = True) -> float:
    """Return the loss of samples by torch's cross-entropy, one at a time, with or without that of observed tokens."""
    import torch

    parts: list[list[float]] = [[], []]
    with torch.inference_mode():
        for sample in samples:
            ids = torch.from_numpy(sample.token_ids).long()
            logits = policy(input_ids=ids[None, :-1], use_cache=False).logits[0].float()
            losses = torch.nn.functional.cross_entropy(logits, ids[1:], reduction="none").tolist()
            for values, weights in zip(parts, (sample.advantages, sample.imitation_weights), strict=True):
                pairs = zip(losses, () if weights is None else weights[1:].tolist(), strict=False)
                values += [weight * loss for loss, weight in pairs if weight > 0]
    trained, observed = parts
    term = math.fsum(observed) / len(observed) if observed and observations else 0.0
    return math.fsum(trained) / len(trained) + term
