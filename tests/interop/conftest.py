"""Each of these tests runs where its library is installed: `make test-interop`."""

import os
import tempfile
from importlib.util import find_spec

_LIBRARIES = {"openenv": "openenv", "verifiers": "verifiers", "trackers": "wandb"}
collect_ignore_glob = [f"test_{name}*.py" for name, library in _LIBRARIES.items() if find_spec(library) is None]
os.environ["TRACKIO_DIR"] = tempfile.mkdtemp()  # read when trackio is imported
