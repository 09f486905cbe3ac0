"""The models of an audit: plain transformers in float32, with the weights of a run's policy versions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torl.apps.audit.checks import Check
from torl.apps.audit.history import RunHistory
from torl.config import LearningConfig
from torl.errors import TorlError
from torl.learner.checkpoint.directory import LEARNER, checkpoint_path
from torl.learner.checkpoint.shards import merge_adapters, read_policy_weights

_ADAPTER_TOLERANCE = {"float32": 1e-5, "bfloat16": 2.0**-6}
_EXPORT_KEYS = {"dtype", "torch_dtype", "_name_or_path", "transformers_version"}  # may change in an export


def has_weights(run: Path, version: int) -> bool:
    """Whether the weights of a policy version are available: the initial model's, or a checkpoint's."""
    return version == 0 or (checkpoint_path(run, version) / LEARNER).is_dir()


def load_model(directory: Path) -> Any:
    """Load a model with transformers in float32."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # it would overwrite the report
    model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, local_files_only=True)
    return model.eval()


class PolicyVersions:
    """A model of transformers in float32 with the weights of a run's policy versions, one at a time."""

    def __init__(self, history: RunHistory, model: Path) -> None:
        """Load the initial model."""
        self._directory, self._config = history.directory, history.configs[-1][1]
        self._policy = load_model(model)
        base = self._policy.named_parameters() if self._config.model.adapters is not None else ()
        self._base = {name: weight.detach().clone() for name, weight in base}

    def load(self, version: int) -> Any:
        """Return the model with the weights of a version, in ascending order of versions.

        Raises:
            TorlError: The weights of the checkpoint are damaged, or do not match the model.
        """
        if version > 0:
            weights, lora = self._read(version), self._config.model.adapters
            _load_weights(self._policy, weights if lora is None else merge_adapters(weights, self._base, lora))
        return self._policy

    def load_rounded(self, version: int) -> Any:
        """Return the model as `load` does, with adapters merged in the precision of the learner."""
        lora = self._config.model.adapters
        if lora is None or version == 0:
            return self.load(version)
        weights, base = (_rounded(each, self._config) for each in (self._read(version), self._base))
        _load_weights(self._policy, merge_adapters(weights, base, lora))
        return self._policy

    def _read(self, version: int) -> dict[str, Any]:
        return read_policy_weights(checkpoint_path(self._directory, version) / LEARNER)


def _rounded(weights: Mapping[str, Any], config: LearningConfig) -> dict[str, Any]:
    """Return weights as the learner computes with them."""
    import torch

    dtype = getattr(torch, config.learner.dtype)
    return {name: weight.to(dtype).float() for name, weight in weights.items()}


def _load_weights(policy: Any, weights: dict[str, Any]) -> None:
    """Load `weights` into a model. Tied weights appear under one of their names."""
    missing, unexpected = policy.load_state_dict(weights, strict=False)
    loaded = {policy.get_parameter(name).data_ptr() for name in weights if name not in unexpected}
    absent = [name for name in missing if policy.get_parameter(name).data_ptr() not in loaded]
    if unexpected or absent:
        raise TorlError(f"the weights of the checkpoint do not match the model: {absent + unexpected}")


def check_export(check: Check, policy: Any, directory: Path, config: LearningConfig) -> None:
    """Compare the exported model with the weights of the last checkpoint, rounded to its precision."""
    import torch
    from transformers import AutoModelForCausalLM

    try:
        exported: Any = AutoModelForCausalLM.from_pretrained(directory, dtype="auto", local_files_only=True)
        found = dict(exported.named_parameters())
    except (OSError, ValueError, RuntimeError) as error:
        check.add(False, f"{directory.name}/: expected the exported model, found {type(error).__name__}: {error}")
        return
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
