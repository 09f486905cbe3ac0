"""Models and data sets by their names on the Hugging Face Hub: in its cache, or downloaded where there is a network.

Where the cache lies and whether the network may be asked is said by the hub's own variables (HF_HOME, HF_HUB_OFFLINE).
"""

from torl.hub.datasets import name_hint, pinned_dataset, resolve_dataset, stream_dataset
from torl.hub.downloads import hub_errors
from torl.hub.models import pinned_model, resolve_model, resolve_model_config
from torl.hub.names import DATASET_PREFIX
from torl.hub.remote_file import RemoteFile
from torl.hub.splits import files_in

__all__ = [
    "DATASET_PREFIX",
    "RemoteFile",
    "files_in",
    "hub_errors",
    "name_hint",
    "pinned_dataset",
    "pinned_model",
    "resolve_dataset",
    "resolve_model",
    "resolve_model_config",
    "stream_dataset",
]
