"""These tests run where TRL and verl are installed: `make test-peers`."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("verl") and find_spec("trl") else ["test_*.py"]
