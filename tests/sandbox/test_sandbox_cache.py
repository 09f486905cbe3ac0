"""The prepared guest on disk: damaged, half written, prepared twice at once, on a disk that takes no more.

Compiling the guest takes a minute, so these tests work on a copy of the user's prepared guest, and let only its
memory image be rebuilt, which takes seconds and goes the same way.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from test_sandbox_pool import interrupt, timer
from torl_sandbox import SandboxError, SandboxPool, _core, prepare_guest
from torl_sandbox.guest import worker_command


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A prepared guest of this test's own; the large files are shared with the user's until they are replaced."""
    directory = tmp_path / "cache"
    directory.mkdir()
    for part in _core.sandbox_files(prepare_guest()):
        for file in (part, part.with_name(part.name + ".check")):
            try:
                os.link(file, directory / file.name)
            except OSError:
                shutil.copy(file, directory / file.name)
    return directory


def only(cache: Path, suffix: str) -> Path:
    """The one file with the suffix."""
    [file] = cache.glob(f"*{suffix}")
    return file


def edit(file: Path, change: Callable[[bytearray], object]) -> None:
    """Changes a file without touching what it was linked to."""
    content = bytearray(file.read_bytes())
    change(content)
    file.unlink()
    file.write_bytes(content)


def flip_a_bit(content: bytearray) -> None:
    content[len(content) // 2] ^= 1


def cut(content: bytearray) -> None:
    del content[len(content) // 2 :]


def empty(content: bytearray) -> None:
    content.clear()


def stages_of(cache: Path) -> list[str]:
    stages: list[str] = []
    prepare_guest(lambda stage, fraction: stages.append(stage), cache=cache)
    return stages


def test_a_prepared_guest_is_used_as_it_is(cache: Path) -> None:
    assert stages_of(cache) == []


@pytest.mark.parametrize("suffix", [".module", ".zip", ".image"])
@pytest.mark.parametrize("damage", [flip_a_bit, cut, empty])
def test_a_damaged_file_is_never_used(cache: Path, suffix: str, damage: Callable[[bytearray], object]) -> None:
    edit(only(cache, suffix), damage)
    with pytest.raises(SandboxError, match="no prepared guest"):
        _core.SandboxWorkers(worker_command(), cache, 1, True, 0, 0)


@pytest.mark.parametrize("damage", [flip_a_bit, cut, empty])
def test_a_damaged_check_is_never_believed(cache: Path, damage: Callable[[bytearray], object]) -> None:
    edit(only(cache, ".module.check"), damage)
    with pytest.raises(SandboxError, match="no prepared guest"):
        _core.SandboxWorkers(worker_command(), cache, 1, True, 0, 0)


PREPARE = """
import json, sys
from pathlib import Path
from torl_sandbox import prepare_guest
told = []
prepare_guest(lambda stage, fraction: told.append((stage, fraction)), cache=Path(sys.argv[1]))
print(json.dumps(told))
"""
KILLED = """
import os, sys
from pathlib import Path
from torl_sandbox import prepare_guest
def progress(stage, fraction):
    if stage == sys.argv[2]:
        os.kill(os.getpid(), 9)
prepare_guest(progress, cache=Path(sys.argv[1]))
"""


def give_up(stage: str, fraction: float) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_damaged_cache_is_rebuilt_once_by_concurrent_processes(cache: Path) -> None:
    image = only(cache, ".image")
    image.unlink()
    (cache / "x.image.partial-1").write_bytes(b"half")
    with pytest.raises(KeyboardInterrupt):
        prepare_guest(give_up, cache=cache)
    for stage in ("warming up the interpreter", "writing the snapshot"):
        killed = subprocess.run([sys.executable, "-c", KILLED, str(cache), stage], timeout=120, check=False)
        assert killed.returncode == -signal.SIGKILL
    image.write_bytes(b"damaged")
    command = [sys.executable, "-c", PREPARE, str(cache)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    replies = [json.loads(process.communicate(timeout=120)[0]) for process in processes]
    (built,) = [one for one in replies if "warming up the interpreter" in dict(one)]
    assert "compiling the interpreter" not in dict(built)
    fractions = [fraction for _, fraction in built]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)
    assert not list(cache.glob("*.partial-*"))
    with SandboxPool(1, cache=cache) as pool:
        pool.self_test()
    assert stages_of(cache) == []


FULL = """
import resource, sys
from pathlib import Path
from torl_sandbox import SandboxError
from torl_sandbox import prepare_guest
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    prepare_guest(cache=Path(sys.argv[1]))
except SandboxError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_disk_that_takes_no_more_is_named(cache: Path) -> None:
    image = only(cache, ".image")
    image.unlink()
    completed = subprocess.run(
        [sys.executable, "-c", FULL, str(cache)], capture_output=True, text=True, timeout=120, check=True
    )
    assert completed.stdout.startswith(f"cannot write {image}: ")
    assert not list(cache.glob("*.partial-*"))


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(SandboxError, match=r"cannot make the cache directory .*file/cache"):
        prepare_guest(cache=tmp_path / "file" / "cache")
    with pytest.raises(SandboxError, match="cannot make the cache directory /proc/torl"):
        prepare_guest(cache=Path("/proc/torl"))


def test_a_read_only_cache_that_is_whole_serves(cache: Path) -> None:
    cache.chmod(0o500)
    try:
        with SandboxPool(1, cache=cache) as pool:
            assert pool.run("print(1)").ok
    finally:
        cache.chmod(0o700)


@pytest.mark.slow
def test_from_nothing(tmp_path: Path) -> None:
    stages = stages_of(tmp_path / "cache")
    assert "compiling the interpreter" in stages
    with SandboxPool(1, cache=tmp_path / "cache") as pool:
        pool.self_test()


def test_signal_interrupts_the_wait_for_another_process(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        released = threading.Timer(
            20, lambda: fcntl.flock(lock, fcntl.LOCK_UN)
        )  # otherwise a failure would last forever
        released.start()
        started = time.monotonic()
        with timer(0.5, 0, interrupt), pytest.raises(InterruptedError):
            prepare_guest(cache=tmp_path)
        assert time.monotonic() - started < 15
        released.cancel()
