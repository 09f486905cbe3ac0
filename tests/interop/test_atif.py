"""ATIF exports in Harbor's own validator, which needs Python 3.12: HARBOR_PYTHON is the interpreter that has harbor."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from builders import grade, trajectory
from foreign_files import CONVERSATION, FILES, episode, node
from torl.run.records.rows import TrajectoryRecord, encode_trajectory
from torl_lab.exchange.command import main
from viewed_runs import lines, varied

PYTHON = os.environ.get("HARBOR_PYTHON", "")
PROGRAM = """
import json, sys
from harbor.utils.trajectory_validator import TrajectoryValidator
for path in sys.stdin.read().split("\\n"):
    validator = TrajectoryValidator()
    print(json.dumps([validator.validate(path), validator.get_errors()]))
"""
pytestmark = pytest.mark.skipif(not PYTHON, reason="needs HARBOR_PYTHON: Python 3.12 or later with harbor")


def errors_of(*paths: Path) -> list[list[str]]:
    """The errors that Harbor finds in each file."""
    reply = subprocess.run([PYTHON, "-c", PROGRAM], input="\n".join(map(str, paths)), capture_output=True, text=True)
    assert reply.returncode == 0, reply.stderr
    found = [json.loads(line) for line in reply.stdout.splitlines()]
    assert all(valid is (not errors) for valid, errors in found)
    return [errors for _, errors in found]


def test_exports_of_torl_and_of_all_other_formats_are_valid(tmp_path: Path) -> None:
    branched = replace(trajectory("x", "y"), branches=(trajectory("z"),))
    rows = [varied(0, number, number) for number in range(12)]
    rows.append(encode_trajectory(TrajectoryRecord(0, branched, grade(), 0.5)))
    (tmp_path / "own.jsonl").write_bytes(lines(rows))
    fork = [
        node(2, {"role": "user", "content": "Shorter."}, [20]),
        node(5, {"role": "assistant", "content": "2"}, [5, 21], 1),
    ]
    (tmp_path / "forked.jsonl").write_text(json.dumps(episode([*CONVERSATION, *fork])) + "\n")
    for name, write in FILES.items():
        write(tmp_path / name)
    for name in ("own.jsonl", "forked.jsonl", *FILES):
        assert main([str(tmp_path / name), str(tmp_path / "atif" / name), "--atif"]) == 0
    exported = sorted((tmp_path / "atif").glob("*/*.json"))
    assert len(exported) >= len(rows) + 1 + len(FILES)
    assert [path for path, errors in zip(exported, errors_of(*exported), strict=True) if errors] == []
    document = json.loads(exported[0].read_text())
    document["steps"][0]["step_id"] = 7
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    assert errors_of(tmp_path / "wrong.json") != [[]]
