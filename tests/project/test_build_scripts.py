"""Scripts for installing and packaging: commands side by side, and the check of the wheels."""

import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path

import pytest

import torl
import torl_sandbox

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"


def run_script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPTS / name, *arguments], capture_output=True, text=True, cwd=SCRIPTS.parent
    )


def write_wheel(path: Path, *, glibc: str = "2.28", lacking: str = "", added: str = "") -> Path:
    """A wheel of the name's kind with all that it must hold, and with the faults asked for."""
    package = ["__init__.py", "py.typed", "_core.abi3.so", "_core.pyi"]
    files = [f"torl_sandbox/{file}" for file in (*package, "servers/fusion.py")]
    if not path.name.startswith("torl_sandbox"):
        files += [f"torl/{file}" for file in package]
        files += [f"torl/demo/problems/{name}.jsonl" for name in ("train", "heldout")]
        files += [f"torl/demo/base_model/{name}" for name in ("model.safetensors", "tokenizer.json")]
        files += ["torl_lab/__init__.py", "torl_lab/py.typed"]
        files += [f"torl_lab/view/static/{name}" for name in ("index.html", "vendor/preact.mjs")]
        python = SCRIPTS.parent / "python"
        files += [str(file.relative_to(python)) for file in python.glob("torl/*/**/*.toml")]
        files += [str(file.relative_to(python)) for file in python.glob("torl/recipes/*/README.md")]
    if added:
        files.append(added)
    with zipfile.ZipFile(path, "w") as wheel:
        for file in files:
            if file != lacking:
                wheel.writestr(file, f"\0GLIBC_2.2.5\0GLIBC_{glibc}\0")
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


@pytest.mark.parametrize("name", ["torl", "torl_sandbox"])
def test_a_whole_wheel_for_an_old_glibc_passes(name: str, tmp_path: Path) -> None:
    done = run_script("check_wheel.py", str(write_wheel(tmp_path / f"{name}.whl")))
    assert (done.returncode, done.stderr) == (0, "")
    assert "needs glibc 2.28" in done.stdout


@pytest.mark.parametrize(
    ("name", "fault", "message"),
    [
        ("torl_sandbox", {"glibc": "2.34"}, "needs GLIBC_2.34"),
        ("torl_sandbox", {"glibc": "2.100"}, "needs GLIBC_2.100"),
        ("torl_sandbox", {"lacking": "torl_sandbox/_core.abi3.so"}, "lacks torl_sandbox/_core.abi3.so"),
        ("torl_sandbox", {"added": "torl/base/errors.py"}, "holds torl/base/errors.py"),
        ("torl", {"lacking": "torl/py.typed"}, "lacks torl/py.typed"),
        ("torl", {"lacking": "torl/presets/demo.toml"}, "lacks torl/presets/demo.toml"),
        ("torl", {"lacking": "torl_sandbox/_core.abi3.so"}, "lacks torl_sandbox/_core.abi3.so"),
        ("torl", {"added": "torl/tests/test_it.py"}, "holds torl/tests/test_it.py"),
        ("torl", {"added": "torl/__pycache__/train.cpython-311.pyc"}, "holds torl/__pycache__/train.cpython-311.pyc"),
    ],
)
def test_a_wheel_with_a_fault_is_refused_by_its_name(
    name: str, fault: dict[str, str], message: str, tmp_path: Path
) -> None:
    path = write_wheel(tmp_path / f"{name}.whl", **fault)
    done = run_script("check_wheel.py", str(path))
    assert done.returncode == 1
    assert done.stderr == f"error: {path} {message}\n"


def test_a_fault_in_one_of_several_wheels_is_found(tmp_path: Path) -> None:
    whole = write_wheel(tmp_path / "torl.whl")
    faulty = write_wheel(tmp_path / "torl_sandbox.whl", lacking="torl_sandbox/py.typed")
    for wheels in ([whole, faulty], [faulty, whole]):
        assert run_script("check_wheel.py", *map(str, wheels)).returncode == 1


# --- one declaration of what both wheels say ------------------------------------------------------------------------


def test_both_wheels_ask_for_the_same_libraries() -> None:
    """torl's wheel holds the sandbox, so it cannot ask for the other wheel with an extra."""
    torl, sandbox = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for folder in ("", "crates/sandbox")
    )
    assert set(sandbox["dependencies"]) <= set(torl["dependencies"])
    assert sandbox["requires-python"] == torl["requires-python"]
    for extra, libraries in sandbox["optional-dependencies"].items():
        assert torl["optional-dependencies"][extra] == libraries


def test_one_version_is_everywhere() -> None:
    cargo, project = (
        tomllib.loads((ROOT / name).read_text(encoding="utf-8")) for name in ("Cargo.toml", "pyproject.toml")
    )
    version = cargo["workspace"]["package"]["version"]
    assert (project["project"]["version"], torl.__version__, torl_sandbox.__version__) == (version,) * 3


def test_the_sandboxs_wheel_takes_every_file_of_its_package() -> None:
    """maturin takes them through a link, and only by these patterns."""
    project = ROOT / "crates" / "sandbox"
    patterns = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["maturin"]["include"]
    taken = {str(file.relative_to(project)) for pattern in patterns for file in project.glob(pattern)}
    tracked = subprocess.run(["git", "ls-files", "torl_sandbox"], cwd=ROOT / "python", capture_output=True, text=True)
    assert taken == set(tracked.stdout.split()) != set()
