"""Tests that run with TRL and verl installed: `make test-peers`."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("verl") and find_spec("trl") else ["test_*.py"]
