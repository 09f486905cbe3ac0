"""Scripts for installing and packaging: commands side by side, and the check of a wheel."""

import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


def run_script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPTS / name, *arguments], capture_output=True, text=True, cwd=SCRIPTS.parent
    )


def write_wheel(path: Path, *, glibc: str = "2.28", lacking: str = "", added: str = "") -> Path:
    """A wheel with all that a wheel must hold, and with the faults asked for."""
    files = ["__init__.py", "py.typed", "_core.abi3.so", "_core.pyi"]
    files += [f"demo/problems/{name}.jsonl" for name in ("train", "heldout")]
    files += [f"demo/base_model/{name}" for name in ("model.safetensors", "tokenizer.json")]
    files += [f"apps/view/static/{name}" for name in ("index.html", "vendor/preact.mjs")]
    files.append("report/vendor/plotly-basic.min.js")
    package = SCRIPTS.parent / "python/torl"
    files += [str(file.relative_to(package)) for file in package.glob("*/**/*.toml")]
    files += [str(file.relative_to(package)) for file in package.glob("recipes/*/README.md")]
    if added:
        files.append(added)
    with zipfile.ZipFile(path, "w") as wheel:
        for file in files:
            if file != lacking:
                wheel.writestr(f"torl/{file}", f"\0GLIBC_2.2.5\0GLIBC_{glibc}\0")
    return path


def test_commands_run_at_the_same_time(tmp_path: Path) -> None:
    """Each waits for the other, so one after the other would never end."""
    first, second = tmp_path / "first", tmp_path / "second"
    wait = "touch {}; until test -e {}; do sleep 0.05; done; echo met"
    done = run_script("side_by_side.py", f"a={wait.format(first, second)}", f"b={wait.format(second, first)}")
    assert done.returncode == 0
    assert done.stdout.count("| met\n") == 2


def test_a_command_that_fails_stops_the_others_and_its_last_lines_are_shown_again(tmp_path: Path) -> None:
    started, pid = tmp_path / "started", tmp_path / "pid"
    done = run_script(
        "side_by_side.py",
        f"long=sleep 1000 & echo $! > {pid}; touch {started}; wait",
        f"short=until test -e {started}; do sleep 0.05; done; echo no network >&2; exit 7",
    )
    assert done.returncode == 7
    assert done.stderr == "short failed; its last lines:\nno network\n"
    status = Path(f"/proc/{pid.read_text().strip()}/stat")
    deadline = time.monotonic() + 60
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline, "what the other command had started is still running"
        time.sleep(0.05)


def test_a_whole_wheel_for_an_old_glibc_passes(tmp_path: Path) -> None:
    done = run_script("check_wheel.py", str(write_wheel(tmp_path / "torl.whl")))
    assert (done.returncode, done.stderr) == (0, "")
    assert "needs glibc 2.28" in done.stdout


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"glibc": "2.34"}, "needs GLIBC_2.34"),
        ({"glibc": "2.100"}, "needs GLIBC_2.100"),
        ({"lacking": "py.typed"}, "lacks torl/py.typed"),
        ({"lacking": "presets/demo.toml"}, "lacks torl/presets/demo.toml"),
        ({"added": "tests/test_it.py"}, "holds torl/tests/test_it.py"),
        ({"added": "__pycache__/train.cpython-311.pyc"}, "holds torl/__pycache__/train.cpython-311.pyc"),
    ],
)
def test_a_wheel_with_a_fault_is_refused_by_its_name(tmp_path: Path, fault: dict[str, str], message: str) -> None:
    path = write_wheel(tmp_path / "torl.whl", **fault)
    done = run_script("check_wheel.py", str(path))
    assert done.returncode == 1
    assert done.stderr == f"error: {path} {message}\n"
