"""Each of these tests runs where its library is installed: `make test-doors`."""

import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "integration"))  # what doors are asked with

VERIFIERS = find_spec("verifiers") is not None
CLASSIC = VERIFIERS and find_spec("verifiers.envs") is not None  # before its version 0.3
THERE = {"openenv": find_spec("openenv") is not None, "verifiers": VERIFIERS and not CLASSIC, "classic": CLASSIC}
collect_ignore_glob = [f"test_{name}*.py" for name, there in THERE.items() if not there]
