"""The check of log-probabilities against plain transformers in float32, with the weights of the sampling policy."""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torl.apps.audit.checks import Check, place_of
from torl.apps.audit.history import RunHistory
from torl.errors import TorlError
from torl.hub import resolve_model
from torl.learner.checkpoint.directory import LEARNER, checkpoint_path
from torl.learner.checkpoint.shards import merge_adapters, read_policy_weights
from torl.records.rows import TrajectoryRecord
from torl.training.health import engine_options, inexact_logprobs

# Limits of the mean and the maximum |difference| to transformers, by the engine's dtype. Rounding reaches a tenth of
# them; an attention mask or a position that is off by one exceeds them by far.
_LIMITS = {"float32": (1e-5, 1e-3), "bfloat16": (5e-2, 2.0)}
_MAX_LOGITS = 1 << 25  # of a batch, 128 MiB in float32; a single trajectory may have more


def has_weights(run: Path, version: int) -> bool:
    """Whether the weights of a policy version are available: the initial model's, or a checkpoint's."""
    return version == 0 or (checkpoint_path(run, version) / LEARNER).is_dir()


class SampledTrajectories:
    """The first trajectories of each policy version whose weights are available."""

    def __init__(self, history: RunHistory, count: int) -> None:
        """Collect up to `count` trajectories of each version."""
        self._history, self._count = history, count
        self._by_version: defaultdict[int, list[TrajectoryRecord]] = defaultdict(list)
        self._has_weights: dict[int, bool] = {}
        self._skip_reason = ""

    def add(self, episodes: Sequence[TrajectoryRecord]) -> None:
        """Add trajectories of a step."""
        for record in [each for episode in episodes for each in episode.episode_trajectories]:
            reason = inexact_logprobs(self._history.config_at(record.step))
            if reason is not None:
                self._skip_reason = reason
                continue
            for version in {int(version) for version in record.trajectory.policy_versions_T if version >= 0}:
                if version not in self._has_weights:
                    self._has_weights[version] = has_weights(self._history.directory, version)
                if self._has_weights[version] and len(self._by_version[version]) < self._count:
                    self._by_version[version].append(record)

    def check(self, check: Check) -> None:
        """Check the log-probabilities of the collected trajectories."""
        if self._skip_reason:
            check.add_note(self._skip_reason)
        elif self._count and not any(self._by_version.values()):
            check.add_note("no checkpoint has the weights of these steps")
        if any(self._by_version.values()):
            check_logprobs(
                check, self._history, resolve_model(self._history.configs[-1][1].model.path), self._by_version
            )


def check_logprobs(
    check: Check, history: RunHistory, model: Path, by_version: Mapping[int, Sequence[TrajectoryRecord]]
) -> None:
    """Compare the engine's log-probabilities with plain transformers.

    Args:
        check: Result that the comparisons are counted in.
        history: History of the run.
        model: Directory of the initial model.
        by_version: Trajectories by the policy versions that sampled them. Versions without weights are left out.
    """
    mean_limit, limit = _LIMITS[engine_options(history.configs[-1][1]).dtype]
    policies = PolicyVersions(history, model)
    gaps: list[float] = []
    for version, records in sorted(by_version.items()):
        per_token: list[float] = []
        with check.reading(f"policy version {version}"):
            policy = policies.load(version)
            for record, difference in _gaps(policy, records, version, history):
                worst = max(difference, default=0.0)
                check.add(worst <= limit, f"{place_of(record)}: a logprob differs by {worst:.2g}", worst)
                per_token += difference
        if per_token and (mean := statistics.fmean(per_token)) > mean_limit:
            check.add(False, f"policy version {version}: logprobs differ by {mean:.2g} on average", mean)
        gaps += per_token
    check.mean_difference = statistics.fmean(gaps) if gaps else None
    versions = ", ".join(map(str, sorted(by_version)))
    check.add_note(f"policy versions {versions}")


class PolicyVersions:
    """A model of transformers in float32 with the weights of a run's policy versions, one at a time."""

    def __init__(self, history: RunHistory, model: Path) -> None:
        """Load the initial model."""
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # it would overwrite the report
        self._directory, self._adapters = history.directory, history.configs[-1][1].model.adapters
        policy: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, local_files_only=True)
        self._policy = policy.eval()
        adapted = self._adapters is not None
        self._base = {name: weight.detach().clone() for name, weight in policy.named_parameters()} if adapted else {}

    def load(self, version: int) -> Any:
        """Return the model with the weights of a version, in ascending order of versions.

        Raises:
            TorlError: The weights of the checkpoint are damaged, or do not match the model.
        """
        if version > 0:
            weights = read_policy_weights(checkpoint_path(self._directory, version) / LEARNER)
            lora = self._adapters
            _load_weights(self._policy, weights if lora is None else merge_adapters(weights, self._base, lora))
        return self._policy


def _load_weights(policy: Any, weights: dict[str, Any]) -> None:
    """Load `weights` into a model. Tied weights appear under one of their names."""
    missing, unexpected = policy.load_state_dict(weights, strict=False)
    loaded = {policy.get_parameter(name).data_ptr() for name in weights if name not in unexpected}
    absent = [name for name in missing if policy.get_parameter(name).data_ptr() not in loaded]
    if unexpected or absent:
        raise TorlError(f"the weights of the checkpoint do not match the model: {absent + unexpected}")


def _gaps(
    policy: Any, records: Sequence[TrajectoryRecord], version: int, history: RunHistory
) -> Iterator[tuple[TrajectoryRecord, list[float]]]:
    """Yield each trajectory with |engine - transformers| on all tokens that this version sampled."""
    ordered = sorted(records, key=_tokens)
    batch: list[TrajectoryRecord] = []
    for record in ordered:
        if batch and (len(batch) + 1) * _tokens(record) * policy.config.vocab_size > _MAX_LOGITS:
            yield from _gaps_of_batch(policy, batch, version, history)
            batch = []
        batch.append(record)
    if batch:
        yield from _gaps_of_batch(policy, batch, version, history)


def _gaps_of_batch(
    policy: Any, batch: Sequence[TrajectoryRecord], version: int, history: RunHistory
) -> Iterator[tuple[TrajectoryRecord, list[float]]]:
    """Run one forward pass. Rows are padded on the right, which causal attention ignores."""
    import torch

    ids = torch.zeros(len(batch), max(map(_tokens, batch)), dtype=torch.long)
    for row, record in zip(ids, batch, strict=True):
        tokens = [*record.trajectory.prompt.token_ids, *record.trajectory.token_ids_T.tolist()]
        row[: len(tokens)] = torch.tensor(tokens)
    temperatures = torch.tensor([history.config_at(record.step).rollout.temperature for record in batch])
    with torch.inference_mode():
        logits = policy(input_ids=ids, use_cache=False).logits[:, :-1].float() / temperatures[:, None, None]
        logprobs = torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    for row, record in zip(logprobs, batch, strict=True):
        trajectory = record.trajectory
        first = len(trajectory.prompt.token_ids) - 1  # a token is sampled from the logits of the token before it
        gaps = (row[first : first + len(trajectory)] - torch.from_numpy(trajectory.rollout_logprobs_T)).abs()
        yield record, gaps[torch.from_numpy(trajectory.policy_versions_T == version)].tolist()


def _tokens(record: TrajectoryRecord) -> int:
    return len(record.trajectory.prompt.token_ids) + len(record.trajectory)
