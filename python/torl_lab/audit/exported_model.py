"""The check of an exported model: the weights of the last checkpoint, rounded to its precision."""

from pathlib import Path
from typing import Any

from torl.base.errors import DataError
from torl.run.config import LearningConfig
from torl.training.policy_versions import load_model
from torl_lab.audit.checks import Check

_ADAPTER_TOLERANCE = {"float32": 1e-5, "bfloat16": 2.0**-6}
_EXPORT_KEYS = {"dtype", "torch_dtype", "_name_or_path", "transformers_version"}  # may change in an export


def check_export(check: Check, policy: Any, directory: Path, config: LearningConfig) -> None:
    """Compare the exported model with the weights of the last checkpoint, rounded to its precision."""
    import torch

    try:
        exported = load_model(directory, "auto")
    except DataError as error:
        check.add(False, f"{directory.name}/: expected the exported model, found {error}")
        return
    found = dict(exported.named_parameters())
    before, after = policy.config.to_dict(), exported.config.to_dict()
    for key in sorted({*before, *after} - _EXPORT_KEYS):
        if before.get(key) != after.get(key):
            check.expect(f"{directory.name}/config.json, {key}", before.get(key), after.get(key))
    # Products of adapters are summed in another order, which may round a merged weight to a neighbor.
    tolerance = 0.0 if config.model.adapters is None else _ADAPTER_TOLERANCE[config.learner.dtype]
    for name, weight in policy.named_parameters():
        other = found.get(name)
        expected = f"{config.learner.dtype} {tuple(weight.shape)}"
        actual = "none" if other is None else f"{str(other.dtype).removeprefix('torch.')} {tuple(other.shape)}"
        if other is None or expected != actual:
            check.expect(f"{directory.name}/, {name}", expected, actual)
        elif not torch.allclose(other.float(), weight.to(other.dtype).float(), rtol=tolerance, atol=tolerance * 1e-2):
            check.add(False, f"{directory.name}/: expected {name} as in the last checkpoint, found other weights")
