"""The policy versions of a run as models of plain transformers in float32, and their export."""

from pathlib import Path
from typing import Any

from torl.base.errors import CheckpointError, DataError, TorlError
from torl.components.hub import require_plain_model, resolve_model
from torl.learner.checkpoint.directory import LEARNER, checkpoint_path
from torl.learner.checkpoint.shards import adapter_products, read_policy_weights
from torl.learner.exporting import MAX_FILE_BYTES, add_stop_tokens, copy_model_files
from torl.rollout.model_directory import stop_tokens_of
from torl.run.config import LearningConfig, LoraConfig


def has_weights(run: Path, version: int) -> bool:
    """Whether the weights of a policy version are available: the initial model's, or a checkpoint's."""
    return version == 0 or (checkpoint_path(run, version) / LEARNER).is_dir()


def load_model(directory: Path, dtype: str = "float32") -> Any:
    """Load a model with transformers, in float32 or in the precision of its files ("auto").

    Raises:
        DataError: transformers cannot load the model, or would run code or wait for a named pipe.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # it would overwrite the report
    require_plain_model(directory)
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            directory, dtype=dtype, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # of transformers, huggingface_hub or safetensors
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        raise DataError(f"{directory}: transformers cannot load the model: {type(error).__name__}: {reason}") from error
    return model.eval()


class PolicyVersions:
    """A model of transformers in float32 with the weights of a run's policy versions, one at a time."""

    def __init__(self, run: Path, config: LearningConfig) -> None:
        """Load the initial model of a run with this configuration.

        Raises:
            DataError: The model is unavailable.
        """
        self._directory, self._config = run, config
        self._policy = load_model(resolve_model(config.model.path))
        self._base: dict[str, Any] = {}  # the initial weights that adapters change, once they have changed them

    def load(self, version: int, *, rounded: bool = False) -> Any:
        """Return the model with the weights of a version, in ascending order of versions.

        Args:
            version: Number of the policy version.
            rounded: Whether adapters are merged in the precision of the learner.

        Raises:
            TorlError: The weights of the checkpoint are damaged, or do not match the model.
        """
        if version > 0:
            weights, lora = self.read(version), self._config.model.adapters
            if lora is None:
                _load_weights(self._policy, weights)
            else:
                self._merge(weights, lora, self._config.learner.dtype if rounded else "float32")
        return self._policy

    def _merge(self, weights: dict[str, Any], lora: LoraConfig, dtype: str) -> None:
        """Merge adapters into the initial weights one by one: a large model is not in memory twice."""
        import torch

        precision = getattr(torch, dtype)
        rounded = {name: weight.to(precision).float() for name, weight in weights.items()}
        for name, product in adapter_products(rounded, lora):
            try:
                weight = self._policy.get_parameter(name).data
            except AttributeError as error:
                raise TorlError(f"the weights of the checkpoint do not match the model: {name}") from error
            if name not in self._base:
                self._base[name] = _compact(weight)
            torch.add(self._base[name].to(precision).float(), product, out=weight)

    def read(self, version: int) -> dict[str, Any]:
        """Return the weights in the checkpoint of a version."""
        return read_policy_weights(checkpoint_path(self._directory, version) / LEARNER)


def _compact(weight: Any) -> Any:
    """Return a copy of a float32 weight, in bfloat16 if that loses nothing."""
    compact = weight.bfloat16()
    return compact if compact.float().equal(weight) else weight.clone()


def _load_weights(policy: Any, weights: dict[str, Any]) -> None:
    """Load `weights` into a model. Tied weights appear under one of their names."""
    missing, unexpected = policy.load_state_dict(weights, strict=False)
    loaded = {policy.get_parameter(name).data_ptr() for name in weights if name not in unexpected}
    absent = [name for name in missing if policy.get_parameter(name).data_ptr() not in loaded]
    if unexpected or absent:
        raise TorlError(f"the weights of the checkpoint do not match the model: {absent + unexpected}")


def write_model_files(config: LearningConfig, directory: Path) -> None:
    """Write the files of an exported model other than its weights.

    Raises:
        DataError: The initial model is unavailable.
    """
    copy_model_files(resolve_model(config.model.path), directory)
    add_stop_tokens(directory, stop_tokens_of(config))


def export_version(run: Path, config: LearningConfig, version: int, directory: Path) -> None:
    """Write the model of a checkpoint in the precision of the learner, with the other files of the initial model.

    Raises:
        DataError: The initial model is unavailable.
        TorlError: The checkpoint cannot be read, or the model cannot be written.
    """
    import torch

    policy = PolicyVersions(run, config).load(version, rounded=True)
    try:
        copy_model_files(resolve_model(config.model.path), directory)
        policy.to(getattr(torch, config.learner.dtype)).save_pretrained(directory, max_shard_size=MAX_FILE_BYTES)
        add_stop_tokens(directory, stop_tokens_of(config))  # last: transformers writes their file anew
    except OSError as error:
        raise CheckpointError(f"the model could not be exported to {directory}: {error}") from error
