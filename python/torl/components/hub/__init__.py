"""Models and datasets by name on the Hugging Face Hub, from its cache or downloaded.

The Hub's own variables set the cache and offline mode (HF_HOME, HF_HUB_OFFLINE).
"""

from torl.components.hub.datasets import IN_PLACE_OF_NAME as IN_PLACE_OF_NAME
from torl.components.hub.datasets import RemoteFile as RemoteFile
from torl.components.hub.datasets import files_in as files_in
from torl.components.hub.datasets import pinned_dataset as pinned_dataset
from torl.components.hub.datasets import resolve_dataset as resolve_dataset
from torl.components.hub.datasets import resolve_file as resolve_file
from torl.components.hub.datasets import stream_dataset as stream_dataset
from torl.components.hub.models import DATASET_PREFIX as DATASET_PREFIX
from torl.components.hub.models import hub_errors as hub_errors
from torl.components.hub.models import is_local as is_local
from torl.components.hub.models import local_tokenizer_file as local_tokenizer_file
from torl.components.hub.models import pinned_model as pinned_model
from torl.components.hub.models import require_plain_model as require_plain_model
from torl.components.hub.models import require_regular_files as require_regular_files
from torl.components.hub.models import require_trainable as require_trainable
from torl.components.hub.models import resolve_model as resolve_model
from torl.components.hub.models import resolve_model_config as resolve_model_config
