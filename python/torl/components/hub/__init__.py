"""Models and datasets by name on the Hugging Face Hub, from its cache or downloaded.

The Hub's own variables set the cache and offline mode (HF_HOME, HF_HUB_OFFLINE).
"""

from torl.components.hub.datasets import (
    IN_PLACE_OF_NAME,
    RemoteFile,
    files_in,
    pinned_dataset,
    resolve_dataset,
    resolve_file,
    stream_dataset,
)
from torl.components.hub.models import (
    DATASET_PREFIX,
    hub_errors,
    is_local,
    local_tokenizer_file,
    pinned_model,
    require_plain_model,
    require_regular_files,
    require_trainable,
    resolve_model,
    resolve_model_config,
)

__all__ = [
    "DATASET_PREFIX",
    "IN_PLACE_OF_NAME",
    "RemoteFile",
    "files_in",
    "hub_errors",
    "is_local",
    "local_tokenizer_file",
    "pinned_dataset",
    "pinned_model",
    "require_plain_model",
    "require_regular_files",
    "require_trainable",
    "resolve_dataset",
    "resolve_file",
    "resolve_model",
    "resolve_model_config",
    "stream_dataset",
]
