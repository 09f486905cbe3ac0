"""Changes to the files of a pool while it works: an upgrade, a cleaned cache, a damaged guest."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from test_sandbox_cache import cache, only
from test_sandbox_pool import alive, until
from torl_sandbox import SandboxError, SandboxPool, _core, guest

__all__ = ["cache"]


def kill_workers(pool: SandboxPool) -> None:
    """The next run needs a new worker."""
    for pid in pool.processes():
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: not alive(pid))  # type: ignore[misc]


def test_a_cache_removed_under_a_pool_costs_nothing(cache: Path) -> None:
    with SandboxPool(2, cache=cache, result_cache_bytes=0) as pool:
        shutil.rmtree(cache)
        for _ in range(3):
            kill_workers(pool)
            assert [outcome.stdout for outcome in pool.run_batch(["import sympy\nprint(sympy.prime(9))"] * 8)] == [
                "23\n"
            ] * 8


@pytest.mark.parametrize("suffix", [".module", ".zip", ".image"])
def test_other_files_in_the_place_of_the_guests_are_not_seen(cache: Path, suffix: str) -> None:
    with SandboxPool(1, cache=cache) as pool:
        file = only(cache, suffix)
        file.unlink()
        file.write_bytes(b"something else")
        kill_workers(pool)
        assert pool.run("import sympy\nprint(sympy.prime(9))").stdout == "23\n"


@pytest.mark.parametrize("suffix", [".module", ".zip", ".image"])
def test_a_guest_cut_in_place_is_an_error_that_names_it(cache: Path, suffix: str) -> None:
    file = only(cache, suffix)
    content = file.read_bytes()
    file.unlink()  # it is linked to the user's own
    file.write_bytes(content)
    with SandboxPool(1, cache=cache) as pool:
        os.truncate(file, 1 << 20)
        kill_workers(pool)
        with pytest.raises(
            SandboxError, match=rf"{file.name} was written to while a sandbox pool used it; run `python -m"
        ):
            pool.run("print(1)")


def test_an_image_cut_while_a_run_reads_it_is_an_error_too(cache: Path) -> None:
    image = only(cache, ".image")
    content = image.read_bytes()
    image.unlink()
    image.write_bytes(content)
    with SandboxPool(1, cache=cache) as pool:
        os.truncate(image, 0)
        with pytest.raises(SandboxError, match=r"\.image was written to"):
            pool.run("import sympy\nprint(sympy.prime(9))")  # SIGBUS in the worker, and no other can be started


def test_new_workers_are_of_the_build_that_made_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = tmp_path / "core.so"
    shutil.copy(_core.__file__, build)
    command = [*guest.worker_command()[:-1], str(build)]
    monkeypatch.setattr("torl_sandbox.pool.worker_command", lambda: command)
    with SandboxPool(1) as pool:
        build.unlink()
        build.write_bytes(b"another build")
        kill_workers(pool)
        assert pool.run("print(1)").ok


def test_worker_may_be_a_separate_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`crates/sandbox` has one for those without an interpreter; any program does that ends up in the same place."""
    program = tmp_path / "worker"
    shutil.copy(shutil.which("true") or "/bin/true", program)
    monkeypatch.setattr("torl_sandbox.pool.worker_command", lambda: [str(program)])
    with pytest.raises(SandboxError, match=r"ended while it started \(exit status: 0\)"):
        SandboxPool(1)


def test_clean_does_not_end_a_pool_of_another_process(cache: Path) -> None:
    home = cache.parent / "home"
    (home / "torl").mkdir(parents=True)
    cache.rename(home / "torl" / "sandbox")
    with SandboxPool(1, cache=home / "torl" / "sandbox") as pool:
        environment = {**os.environ, "XDG_CACHE_HOME": str(home)}
        subprocess.run([sys.executable, "-m", "torl_sandbox", "clean"], check=True, timeout=60, env=environment)
        assert not (home / "torl" / "sandbox").exists()
        kill_workers(pool)
        assert pool.run("print(1)").ok
