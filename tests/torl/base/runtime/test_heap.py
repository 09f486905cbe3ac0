"""Objects that a process excludes from garbage collection."""

import subprocess
import sys


def counts(program: str) -> tuple[int, ...]:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return tuple(map(int, ended.stdout.split()))


def test_objects_of_libraries_are_excluded_from_collection() -> None:
    excluded, left = counts("""
import gc, numpy
from torl.base.runtime.processes.resources import exclude_from_collection
assert len(gc.get_objects()) > 10_000 and not gc.get_freeze_count()
exclude_from_collection()
print(gc.get_freeze_count(), len(gc.get_objects()))
""")
    assert excluded > 10_000
    assert left < 1000


def test_imports_run_without_collections() -> None:
    freed, during, excluded, left, enabled, after_error = counts("""
import gc, weakref
from torl.base.runtime.processes.resources import uncollected_imports
class Cycle: pass
garbage = Cycle()
garbage.itself = garbage
freed = weakref.ref(garbage)
del garbage
collections = []
with uncollected_imports():
    gc.callbacks.append(lambda phase, details: collections.append(phase))
    import numpy
during = len(collections)
excluded, left, enabled = gc.get_freeze_count(), len(gc.get_objects()), gc.isenabled()
try:
    with uncollected_imports():
        import no_such_module
except ModuleNotFoundError:
    print(int(freed() is None), during, excluded, left, int(enabled), int(gc.isenabled()))
""")
    assert freed
    assert not during
    assert excluded > 10_000
    assert left < 1000
    assert enabled
    assert after_error
