"""Each of these tests runs where its library is installed: `make test-interop`."""

import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "integration"))  # clients of the servers

collect_ignore_glob = [f"test_{library}*.py" for library in ("openenv", "verifiers") if find_spec(library) is None]
