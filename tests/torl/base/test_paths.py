"""Resolution of the configuration's paths."""

import pytest

from torl.base.errors import DataError
from torl.base.paths import resolve_path


def test_package_paths() -> None:
    assert resolve_path("torl:components/data/problems.py").name == "problems.py"
    with pytest.raises(DataError, match="this installation of torl does not hold it"):
        resolve_path("torl:demo/nothing.jsonl")
    for outside in ("torl:../../README.md", "torl:/etc/passwd", "torl:components/../../secret"):
        with pytest.raises(DataError, match="must stay inside the package"):
            resolve_path(outside)
