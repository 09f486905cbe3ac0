"""The check of log-probabilities against plain transformers in float32, with the weights of the sampling policy."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from torl.base.errors import TorlError
from torl.base.types import BoolArray, Float32Array, UpdateNumbers
from torl.components.hub import resolve_model
from torl.run.records import metric_names as names
from torl.run.records.files import EXPORT_DIRECTORY
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.tokens import TokenKey, keyed
from torl.training.health import engine_options, stale_logprobs
from torl.training.policy_versions import PolicyVersions, has_weights, load_model
from torl_lab.audit.checks import Check, place_of
from torl_lab.audit.critic_values import check_critic_values
from torl_lab.audit.exports import check_adapter, check_export
from torl_lab.audit.history import RunHistory

# Limits of the mean and the maximum |difference| to transformers, by the engine's dtype. Rounding reaches a third of
# them with thirty layers; an attention mask or a position that is off by one exceeds them by far.
_LIMITS = {"float32": (5e-5, 1e-3), "bfloat16": (5e-2, 2.0)}
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


class SampledTrajectories:
    """The first trajectories of each policy version whose weights are available, and of each reference model."""

    def __init__(self, history: RunHistory, count: int) -> None:
        """Collect up to `count` trajectories of each version."""
        self._history, self._per_version = history, count
        self._by_version: defaultdict[int, list[Sample]] = defaultdict(list)
        self._by_learner: defaultdict[int, list[Sample]] = defaultdict(list)
        self._by_reference: defaultdict[str, list[Sample]] = defaultdict(list)
        self._by_critic: defaultdict[int, list[TrajectoryRecord]] = defaultdict(list)
        self._has_weights: dict[int, bool] = {}
        self._skip_reason = ""
        self._after_other_prompts = False

    def add_step(self, episodes: Sequence[TrajectoryRecord], learned: Collection[TokenKey]) -> None:
        """Add trajectories of a step, with the log-probabilities of the learner and of the reference model, if any.

        Args:
            episodes: Records of the step.
            learned: Trajectories that an optimizer step has: engine and learner differ there by at most the gap in the
                metrics, in any precision of the engine.
        """
        for key, record in keyed(episodes):
            config = self._history.config_at(record.step)
            temperature, limit = config.rollout.temperature, math.inf
            gap = self._history.rows.steps.get(record.step, {}).get(names.LOGPROB_GAP_MAX)
            if key in learned and isinstance(gap, float) and config.rollout.top_p >= 1:
                limit = gap + _LIMITS[config.learner.dtype][1]
            self._add_sampled(record, temperature, config.rollout.top_p, limit)
            kl, values = config.algorithm.kl, record.token_arrays.get("values")
            if values is not None and (record.step == 0 or values.any()):  # a masked trajectory has zeros
                self._add_valued(record)
            for name in ("old_logprobs", "ref_logprobs"):
                numbers = record.token_arrays.get(name)
                if numbers is None or not numbers.any():  # a masked trajectory has zeros
                    continue
                sample = Sample(record, numbers, record.trajectory.loss_mask_T, temperature, config.learner.dtype)
                if name == "old_logprobs":
                    self._add(self._by_learner, record.step, sample)
                elif kl.prompt is not None:
                    self._after_other_prompts = True
                elif kl.path is None:
                    self._add(self._by_learner, 0, sample)
                elif len(self._by_reference[kl.path]) < self._per_version:
                    self._by_reference[kl.path].append(sample)

    def add_updates(self, episodes: Sequence[TrajectoryRecord], numbers: Mapping[TokenKey, UpdateNumbers]) -> None:
        """Add the learner's log-probabilities before the first optimizer step of a training step."""
        for key, record in keyed(episodes):
            found, config = numbers.get(key), self._history.config_at(record.step)
            mask_T = record.trajectory.loss_mask_T
            name = "old_logprobs" if found is not None and "old_logprobs" in found.arrays else "learner_logprobs"
            if found is None or (name == "learner_logprobs" and found.update > 0):
                continue
            if len(found.arrays.get(name, ())) == mask_T.sum():
                logprobs_T = np.zeros(len(mask_T), np.float32)
                logprobs_T[mask_T] = found.arrays[name]
                sample = Sample(record, logprobs_T, mask_T, config.rollout.temperature, config.learner.dtype)
                self._add(self._by_learner, record.step, sample)

    def add_evaluation(self, episodes: Sequence[TrajectoryRecord], *, greedy: bool) -> None:
        """Add trajectories of an evaluation. Log-probabilities of greedy turns have temperature 1."""
        for record in [each for episode in episodes for each in episode.episode_trajectories]:
            config = self._history.config_at(record.step)
            rollout = config.evaluation.apply_to(config.rollout)
            self._add_sampled(record, 1.0 if greedy else rollout.temperature, 1.0 if greedy else rollout.top_p)

    @property
    def count(self) -> int:
        """The number of collected trajectories."""
        groups: tuple[Mapping[Any, Sequence[Any]], ...]
        groups = (self._by_version, self._by_learner, self._by_reference, self._by_critic)
        return sum(len(samples) for group in groups for samples in group.values())

    def check(self, logprobs: Check, export: Check, on_compared: Callable[[], None]) -> None:
        """Check the log-probabilities of the collected trajectories, and the weights of the exported model.

        Args:
            logprobs: Result that trajectories are counted in.
            export: Result that a mismatch of the exported model is counted in.
            on_compared: Callback after each trajectory, in the thread of the call.
        """
        if self._skip_reason:
            logprobs.add_note(self._skip_reason)
        if self._per_version and self._history.configs[-1][1].plays_episodes and not any(self._by_version.values()):
            logprobs.add_note("no checkpoint has the weights of these steps")
        if self._after_other_prompts:
            logprobs.add_note("the reference model's were computed after the prompts of algorithm.kl.prompt")
        if self._per_version:
            groups = [self._by_version, self._by_learner]
            gaps = check_weights(logprobs, export, self._history, groups, on_compared)
            gaps += check_references(logprobs, self._by_reference, on_compared)
            config = self._history.configs[-1][1]
            check_critic_values(logprobs, self._history.directory, config, self._by_critic, on_compared)
            logprobs.mean_difference = statistics.fmean(gaps) if gaps else None

    def _add_sampled(self, record: TrajectoryRecord, temperature: float, top_p: float, limit: float = math.inf) -> None:
        config = self._history.config_at(record.step)
        trajectory, dtype = record.trajectory, engine_options(config).dtype
        for version in {int(version) for version in trajectory.policy_versions_T if version >= 0}:
            if version > 0 and (reason := stale_logprobs(config)) is not None:
                self._skip_reason = f"{reason}; only policy version 0 is compared"
                continue
            mask = trajectory.policy_versions_T == version
            own = limit if version == record.step else math.inf  # the gap is to the policy of the step
            sample = Sample(record, trajectory.rollout_logprobs_T, mask, temperature, dtype, top_p, own)
            self._add(self._by_version, version, sample)

    def _add_valued(self, record: TrajectoryRecord) -> None:
        samples = self._by_critic[record.step]
        if len(samples) < self._per_version and self._knows_weights(record.step):
            samples.append(record)

    def _knows_weights(self, version: int) -> bool:
        if version not in self._has_weights:
            self._has_weights[version] = has_weights(self._history.directory, version)
        return self._has_weights[version]

    def _add(self, samples: dict[int, list[Sample]], version: int, sample: Sample) -> None:
        if self._knows_weights(version) and len(samples[version]) < self._per_version:
            samples[version].append(sample)


def check_weights(
    logprobs: Check,
    export: Check,
    history: RunHistory,
    groups: Sequence[Mapping[int, Sequence[Sample]]],
    on_compared: Callable[[], None],
) -> list[float]:
    """Compare log-probabilities with plain transformers, and the exported model with the last checkpoint.

    Args:
        logprobs: Result that trajectories are counted in.
        export: Result that a mismatch of the exported model is counted in.
        history: History of the run.
        groups: Samples by the policy versions that they belong to. Versions without weights are left out.
        on_compared: Callback after each sample.

    Returns:
        The differences of all tokens.
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
    """Compare log-probabilities of reference models with plain transformers.

    Args:
        logprobs: Result that trajectories are counted in.
        samples: Samples by the path of the reference model, `algorithm.kl.reference`. A missing model is a note.
        on_compared: Callback after each sample.

    Returns:
        The differences of all tokens.
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
        check.add(worst <= min(_LIMITS[sample.dtype][1], sample.limit), example, worst)
        gaps[sample.dtype] += difference
        on_compared()
    for dtype, per_token in gaps.items():
        if per_token and (mean := statistics.fmean(per_token)) > _LIMITS[dtype][0]:
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
