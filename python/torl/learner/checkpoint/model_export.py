"""The model as other programs read it."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from torl.errors import CheckpointError

# Everything beside the weights that a model directory may hold and a reader may want.
_COPIED_PATTERNS = ("*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken", "*.py")
_NOT_COPIED = ("*.index.json",)


def export_model(weights: Mapping[str, Tensor], source: Path, directory: Path) -> None:
    """Write a model directory that transformers and vLLM load: `weights`, and the source's other files.

    Raises:
        CheckpointError: the files could not be written.
    """
    from huggingface_hub import save_torch_state_dict

    try:
        directory.mkdir(parents=True, exist_ok=True)
        for pattern in _COPIED_PATTERNS:
            for path in source.glob(pattern):
                if not any(path.match(excluded) for excluded in _NOT_COPIED):
                    shutil.copyfile(path, directory / path.name)
        config_path = directory / "config.json"
        config = json.loads(config_path.read_text())
        dtypes = {str(tensor.dtype).removeprefix("torch.") for tensor in weights.values()}
        config.pop("torch_dtype", None)
        config["dtype"] = dtypes.pop() if len(dtypes) == 1 else config.get("dtype", "float32")
        config_path.write_text(json.dumps(config, indent=2) + "\n")
        save_torch_state_dict(dict(weights), directory, metadata={"format": "pt"})
        for path in directory.glob("*.safetensors"):
            path.chmod(config_path.stat().st_mode)  # they come readable by their owner only
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"the model could not be exported to {directory}: {error}") from error
