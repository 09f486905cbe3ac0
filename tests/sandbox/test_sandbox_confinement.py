"""The isolation around live workers, as the kernel reports it. Each layer is tried in `confine/tests.rs`."""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from refused_calls import KNOWN, refusing
from torl_sandbox import Confinement, SandboxPool, _core, cache_directory, prepare_guest

NOBODY = "65534"
LANDLOCK = 444  # landlock_create_ruleset, on every machine

REPORT = """
import logging, sys

from torl_sandbox import SandboxPool
logging.basicConfig(stream=sys.stdout, format="LOG %(message)s")
for _ in range(2):
    with SandboxPool(1) as pool:
        pool.self_test()
        walls = pool.confinement()
        print(walls.landlock, walls.seccomp, len(walls.missing))
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(2) as pool:
        yield pool


def landlock_version() -> int:
    """The version that this kernel has; 0 or less for none."""
    version_flag = 1
    return ctypes.CDLL(None).syscall(LANDLOCK, None, ctypes.c_size_t(0), version_flag)


def status_of_threads(pid: int) -> list[dict[str, str]]:
    """The fields of /proc/PID/task/*/status."""
    return [
        dict(line.split(":\t", 1) for line in (task / "status").read_text("utf-8").splitlines())
        for task in Path(f"/proc/{pid}/task").iterdir()
    ]


def limits(pid: int) -> dict[str, str]:
    """Soft limits by name."""
    lines = Path(f"/proc/{pid}/limits").read_text("utf-8").splitlines()[1:]
    return {(fields := re.split(r"\s{2,}", line))[0]: fields[1] for line in lines}


def assert_confined(pid: int) -> None:
    threads = status_of_threads(pid)
    assert len(threads) >= 2  # one that runs guests, one that ends them in time
    for thread in threads:
        name = thread["Name"]
        assert thread["Seccomp"].strip() == "2", name
        assert thread["NoNewPrivs"].strip() == "1", name
        for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            assert int(thread[kind], 16) == 0, (name, kind)
    soft = limits(pid)
    assert soft["Max core file size"] == "0"
    assert soft["Max processes"] == "0"
    assert int(soft["Max open files"]) <= 12
    assert int(soft["Max data size"]) < 8 << 30
    maps = Path(f"/proc/{pid}/maps").read_text("utf-8").splitlines()
    assert not [line for line in maps if "wx" in line.split()[1]]


def test_confinement_is_reported() -> None:
    with SandboxPool(1) as pool:
        walls = pool.confinement()
    version = landlock_version()
    # The newest version that the workers were taught is 9.
    assert walls == Confinement(
        landlock=min(version, 9) if version > 0 else None,
        seccomp=True,
        missing=walls.missing,
    )
    assert len(walls.missing) == (version <= 0)


@pytest.mark.skipif(not KNOWN, reason="the numbers of the system calls are not known here")
def test_confinement_refused_by_a_container_is_reported_once() -> None:
    program = refusing("seccomp", "landlock_create_ruleset") + REPORT
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    line, *others = done.stdout.splitlines()
    assert line.startswith("LOG the sandbox's workers lack an isolation layer on this system: Landlock: ")
    assert line.endswith("seccomp: Operation not permitted (os error 1)")
    assert others == ["None False 2"] * 2


def test_every_thread_of_every_worker_is_confined(pool: SandboxPool) -> None:
    for pid in pool.processes():
        assert_confined(pid)


def test_environment_of_a_worker_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    with SandboxPool(1) as pool:
        given = Path(f"/proc/{pool.processes()[0]}/environ").read_bytes()
    names = {entry.partition(b"=")[0].decode() for entry in given.split(b"\0") if entry}
    assert names <= {"GLIBC_TUNABLES", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH"}
    assert b"secret" not in given


def test_a_worker_that_takes_the_place_of_another_is_too() -> None:
    with SandboxPool(1) as pool:
        [before] = pool.processes()
        os.kill(before, signal.SIGKILL)
        assert pool.run("print(1)").ok
        [after] = pool.processes()
        assert after != before
        assert_confined(after)


def test_a_parent_that_blocks_signals_changes_nothing() -> None:
    """Workers inherit the mask, and tell their own threads by a signal."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        with SandboxPool(1) as pool:
            assert_confined(pool.processes()[0])
            assert len(pool.confinement().missing) == (landlock_version() <= 0)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_confined_worker_exits_cleanly() -> None:
    """It notices that its parent hung up, and exits by itself: the exit takes calls too."""
    program = """
import os, socket, struct, subprocess, sys
from torl_sandbox import _core
from torl_sandbox.guest import worker_command, prepare_guest
[module, image, archive] = [os.fsencode(path) for path in _core.sandbox_files(prepare_guest())]
layout = [int(number) for number in open(image.decode() + ".check").read().split()[2:]]
def text(value): return struct.pack("<Q", len(value)) + value
order = b"\\0\\1" + struct.pack("<Q", 0) + text(module) + text(image) + text(archive)
order += struct.pack("<8Q", os.path.getsize(image), *layout)
ours, theirs = socket.socketpair()
worker = subprocess.Popen(worker_command(), stdin=theirs)
theirs.close()
socket.send_fds(ours, [b"\\0"], [os.open(path, os.O_RDONLY) for path in (module, image, archive)])
ours.sendall(struct.pack("<I", len(order)) + order)
assert ours.recv(5)[4] == 0, "not ready"
ours.shutdown(socket.SHUT_WR)
print(worker.wait())
"""
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (completed.stdout, completed.stderr) == ("0\n", "")


ORDINARY = """
import os, sys
from pathlib import Path
assert os.geteuid() != 0
sys.path[:0] = sys.argv[2:]
from test_sandbox_confinement import assert_confined
from torl_sandbox import SandboxPool
with SandboxPool(1, cache=Path(sys.argv[1]), cpu_seconds=1) as pool:
    pool.self_test()
    [worker] = pool.processes()
    assert_confined(worker)
    assert pool.run("while True: pass").status == "timeout"
    assert pool.run("x = [bytes(10**7) for _ in range(10**3)]").status == "memory"
    assert pool.run("def f(n): return f(n + 1)\\nf(0)").exception_type == "RecursionError"
    assert pool.processes() == [worker], "the worker was lost"
    print(pool.confinement())
"""


def test_an_ordinary_user_has_them_too() -> None:
    """Isolation takes no privileges."""
    prefix: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root can become an ordinary user here only with setpriv, of util-linux")
        # The interpreter and this checkout may lie where only root may look: that much is left to the user.
        user = ["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]
        look = ["--bounding-set", "-all,+dac_read_search", "--inh-caps", "+dac_read_search"]
        prefix = ["setpriv", *user, *look, "--ambient-caps", "+dac_read_search"]
    directory = Path(tempfile.mkdtemp(prefix="torl-ordinary-"))
    try:
        directory.chmod(0o755)
        for file in _core.sandbox_files(prepare_guest()):
            shutil.copy(file, directory)
            shutil.copy(f"{file}.check", directory)
        modules = [str(folder) for folder in Path(__file__).parents[:2]]
        command = [*prefix, sys.executable, "-c", ORDINARY, str(directory), *modules]
        completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd="/")
    finally:
        shutil.rmtree(directory)
    with SandboxPool(1) as pool:
        assert (completed.stdout, completed.stderr) == (f"{pool.confinement()}\n", "")


def test_the_cache_is_read_before_them(tmp_path: Path) -> None:
    """A worker serves on after the prepared guest was removed: all it needs is open."""
    for file in _core.sandbox_files(prepare_guest()):
        shutil.copy(file, tmp_path)
        shutil.copy(f"{file}.check", tmp_path)
    assert cache_directory() != tmp_path
    with SandboxPool(1, cache=tmp_path) as pool:
        [worker] = pool.processes()
        for file in tmp_path.iterdir():
            file.unlink()
        assert pool.run("import statistics, sympy\nprint(sympy.factorint(360))").stdout == "{2: 3, 3: 2, 5: 1}\n"
        assert pool.processes() == [worker]
