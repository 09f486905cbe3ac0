"""Objects that a process excludes from garbage collection."""

import subprocess
import sys


def test_objects_of_libraries_are_excluded_from_collection() -> None:
    program = """
import gc, numpy
from torl.runtime.processes.heap import exclude_from_collection
assert len(gc.get_objects()) > 10_000 and not gc.get_freeze_count()
exclude_from_collection()
print(gc.get_freeze_count(), len(gc.get_objects()))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    excluded, left = map(int, ended.stdout.split())
    assert excluded > 10_000
    assert left < 1000
