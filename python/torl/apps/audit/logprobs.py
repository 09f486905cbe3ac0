"""Log-probabilities with plain transformers, in float32, from the weights of the version that sampled."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torl.apps.audit.check import Check, place_of
from torl.config import TrainConfig
from torl.engine import EngineOptions
from torl.errors import TorlError
from torl.learner.checkpoint.directory import LEARNER, checkpoint_path
from torl.learner.checkpoint.shards import merge_adapters, read_policy_weights
from torl.records.rows import TrajectoryRecord

# How far an engine may be from plain transformers in float32: mean and worst of |difference| over tokens, by the
# engine's precision. Rounding alone reaches a tenth of that; a mask or a position that is off by one, far more.
_LIMITS = {"float32": (1e-5, 1e-3), "bfloat16": (5e-2, 2.0)}
_LOGITS_AT_ONCE = 1 << 25  # 128 MiB in float32; one trajectory may take more


def has_weights(run: Path, version: int) -> bool:
    """Whether the weights of a policy version can be had: those the run began with, or those of a checkpoint."""
    return version == 0 or (checkpoint_path(run, version) / LEARNER).is_dir()


def skip_reason(config: TrainConfig) -> str | None:
    """Why an engine's logprobs are not those of its policy; None if they are."""
    if config.rollout.top_p < 1:
        return "top_p is below 1: the engine's are of a cut distribution"
    if config.rollout.max_staleness and _engine_options(config).keeps_stale_cache:
        return "the engine keeps its cache when new weights arrive: its logprobs are made with keys of older policies"
    return None


def check_logprobs(
    check: Check, run: Path, model: Path, by_version: Mapping[int, Sequence[TrajectoryRecord]], config: TrainConfig
) -> None:
    """Compare the engine's logprobs with those of plain transformers.

    Args:
        check: to count in.
        run: directory of the run.
        model: directory of the model that the run began with.
        by_version: trajectories with tokens of each policy version whose weights are left.
        config: of the run.

    Raises:
        TorlError: weights cannot be read, or are not the model's.
    """
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # it would be drawn across the report
    mean_limit, limit = _LIMITS[_engine_options(config).dtype]
    policy: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, local_files_only=True).eval()
    adapted = config.model.adapters is not None
    base = {name: weight.detach().clone() for name, weight in policy.named_parameters()} if adapted else {}
    gaps: list[float] = []
    for version, records in sorted(by_version.items()):
        if version > 0:
            weights = read_policy_weights(checkpoint_path(run, version) / LEARNER)
            lora = config.model.adapters
            _load_weights(policy, weights if lora is None else merge_adapters(weights, base, lora))
        of_version: list[float] = []
        for record, difference in _gaps(policy, records, version, config.rollout.temperature):
            worst = max(difference, default=0.0)
            check.add(worst <= limit, f"{place_of(record)}: a logprob is {worst:.2g} off", worst)
            of_version += difference
        if of_version and (mean := statistics.fmean(of_version)) > mean_limit:
            check.add(False, f"policy version {version}: logprobs are {mean:.2g} off on average", mean)
        gaps += of_version
    check.mean = statistics.fmean(gaps) if gaps else None
    versions = ", ".join(map(str, sorted(by_version)))
    check.note = f"policy versions {versions}" if versions else "no weights are left"


def _engine_options(config: TrainConfig) -> EngineOptions:
    """The options of the run's engine; the defaults of all engines if it has other ones."""
    options = config.engine.options
    return options if isinstance(options, EngineOptions) else EngineOptions()


def _load_weights(policy: Any, weights: dict[str, Any]) -> None:
    """Put `weights` into a model; a weight that is tied to another is there under one of its names."""
    missing, unexpected = policy.load_state_dict(weights, strict=False)
    loaded = {policy.get_parameter(name).data_ptr() for name in weights if name not in unexpected}
    absent = [name for name in missing if policy.get_parameter(name).data_ptr() not in loaded]
    if unexpected or absent:
        raise TorlError(f"a checkpoint's weights are not the model's: {absent + unexpected}")


def _gaps(
    policy: Any, records: Sequence[TrajectoryRecord], version: int, temperature: float
) -> Iterator[tuple[TrajectoryRecord, list[float]]]:
    """Each trajectory with |engine - transformers| on every token that this version sampled."""
    ordered = sorted(records, key=_tokens)
    batch: list[TrajectoryRecord] = []
    for record in ordered:
        if batch and (len(batch) + 1) * _tokens(record) * policy.config.vocab_size > _LOGITS_AT_ONCE:
            yield from _gaps_of_batch(policy, batch, version, temperature)
            batch = []
        batch.append(record)
    if batch:
        yield from _gaps_of_batch(policy, batch, version, temperature)


def _gaps_of_batch(
    policy: Any, batch: Sequence[TrajectoryRecord], version: int, temperature: float
) -> Iterator[tuple[TrajectoryRecord, list[float]]]:
    """One forward. Rows are padded behind their ends, where nothing that stands before can see it."""
    import torch

    ids = torch.zeros(len(batch), max(map(_tokens, batch)), dtype=torch.long)
    for row, record in zip(ids, batch, strict=True):
        tokens = [*record.trajectory.prompt.token_ids, *record.trajectory.token_ids_T.tolist()]
        row[: len(tokens)] = torch.tensor(tokens)
    with torch.inference_mode():
        logits = policy(input_ids=ids, use_cache=False).logits[:, :-1].float() / temperature
        logprobs = torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    for row, record in zip(logprobs, batch, strict=True):
        trajectory = record.trajectory
        first = len(trajectory.prompt.token_ids) - 1  # the logits before a token are those it was sampled from
        gaps = (row[first : first + len(trajectory)] - torch.from_numpy(trajectory.rollout_logprobs_T)).abs()
        yield record, gaps[torch.from_numpy(trajectory.policy_versions_T == version)].tolist()


def _tokens(record: TrajectoryRecord) -> int:
    return len(record.trajectory.prompt.token_ids) + len(record.trajectory)
