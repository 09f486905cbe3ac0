"""The built site is checked by `make docs`, in the environment that has Sphinx."""

from importlib.util import find_spec

collect_ignore_glob = ["test_*.py"] if find_spec("sphinx") is None else []
