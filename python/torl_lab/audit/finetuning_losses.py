"""The check of the losses of a fine-tuning run, with the weights of its checkpoints."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torl.base.types import TrainingSample
from torl.run.config import FinetuneConfig
from torl.run.records import metric_names as names
from torl.training.examples import Example
from torl.training.policy_versions import PolicyVersions, has_weights
from torl_lab.audit.checks import Check
from torl_lab.audit.history import RunHistory

_LIMITS = {"float32": 1e-4, "bfloat16": 5e-2}
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
                right = gap <= _LIMITS[config.learner.dtype]
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
