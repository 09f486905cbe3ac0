"""A server as `container/Dockerfile` runs it: no capabilities, no new privileges, a root that is read-only."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from serving import run_server
from test_sandbox_confinement import assert_confined

ROOT = Path(__file__).parents[2]
# In a separate mount namespace, where all that is mounted read-only stays so.
CONTAINED = (
    "unshare", "--mount", "sh", "-c",
    'mount -o remount,bind,ro / && exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@"', "sh",
)  # fmt: skip


def can_contain() -> bool:
    try:
        return subprocess.run([*CONTAINED, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


contained = pytest.mark.skipif(not can_contain(), reason="who runs the tests may not make a namespace")


@contained
def test_server_in_container_has_full_isolation() -> None:
    with run_server("--workers", "2", within=CONTAINED) as server:
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        assert re.search(r"(?m)^CapEff:\t0+$", status)
        assert re.search(r"(?m)^NoNewPrivs:\t1$", status)
        assert server.run("print(6 * 7)")["run_result"]["stdout"] == "42\n"
        workers = [
            int(pid.name)
            for pid in Path("/proc").iterdir()
            if pid.name.isdecimal() and parent_of(pid) == server.process.pid
        ]
        assert len(workers) == 2
        for worker in workers:
            assert_confined(worker)
        assert server.terminate() == 0


def parent_of(process: Path) -> int | None:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return None


@contained
def test_check_reports_isolation_in_container() -> None:
    words = [*CONTAINED, sys.executable, "-m", "torl_sandbox", "check"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "isolation of workers: seccomp, " in done.stdout


def test_dockerfile_names_existing_files() -> None:
    text = (ROOT / "container" / "Dockerfile").read_text()
    for copied in re.findall(r"(?m)^COPY (?!--from)(\S+)", text):
        assert (ROOT / copied).exists()
    extras = re.search(r"\.whl\)\[([a-z,]+)\]", text)
    assert extras is not None
    project = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf"(?m)^{extra} = \[", project) for extra in extras.group(1).split(","))
    rust = re.search(r'rust-version = "([\d.]+)"', (ROOT / "Cargo.toml").read_text())
    assert rust is not None
    assert f"FROM rust:{rust.group(1)}-" in text
    assert text.index("USER 10001") < text.index("ENTRYPOINT")
