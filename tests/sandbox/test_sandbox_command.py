"""`python -m torl_sandbox`: what it prints and how it exits."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


def sandbox(
    *arguments: str | Path, stdin: str = "", cache: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables, **({} if cache is None else {"XDG_CACHE_HOME": str(cache)})}
    return subprocess.run(
        [sys.executable, "-m", "torl_sandbox", *arguments],
        input=stdin, capture_output=True, text=True, timeout=120, check=False, env=environment,
    )  # fmt: skip


def test_a_file_is_run(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("import sys\nprint('out')\nprint('err', file=sys.stderr)\n")
    done = sandbox("run", str(file))
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "err\n")


@pytest.mark.parametrize(
    ("code", "stdout", "last_line"),
    [
        ("print('a')\n1 / 0", "a\n", "ZeroDivisionError: division by zero"),
        ("print('b')\nwhile True: pass", "b\n", "sandbox: timeout"),
    ],
)
def test_a_run_that_fails_exits_with_one(code: str, stdout: str, last_line: str) -> None:
    done = sandbox("run", "--cpu-seconds", "0.2", "-", stdin=code)
    assert (done.returncode, done.stdout) == (1, stdout)
    assert done.stderr.splitlines()[-1].startswith(last_line)


def test_seed_is_passed_on() -> None:
    code = "import random\nprint(random.random())"
    first, second, third = (sandbox("run", "--seed", seed, "-", stdin=code).stdout for seed in ("1", "2", "1"))
    assert first == third != second


def test_a_terminal_without_its_letters_gets_them_escaped() -> None:
    code = "import sys\nprint('π = 3')\nprint('∞', file=sys.stderr)"
    done = sandbox("run", "-", stdin=code, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout, done.stderr) == (0, "\\u03c0 = 3\n", "\\u221e\n")


@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [(["--help"], ""), (["run", "-"], ""), (["run", "-"], "1"), (["check"], ""), (["check"], "1")],
)
def test_a_command_ends_quietly_when_its_reader_disconnects(words: list[str], unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "torl_sandbox", *words],
        input="print('x' * 100)", stdout=writing, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )  # fmt: skip
    os.close(writing)
    assert (ended.stderr, ended.returncode) == ("", 128 + signal.SIGPIPE)


@pytest.mark.parametrize("seconds", ["-1", "0", "nan", "soon"])
def test_invalid_cpu_seconds_are_refused(seconds: str) -> None:
    done = sandbox("run", f"--cpu-seconds={seconds}", "-", stdin="print(1)")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert "error: argument --cpu-seconds: " in done.stderr


@pytest.mark.parametrize("arguments", [["/nonexistent.py"], ["-", "--input", "/nonexistent.csv"]])
def test_a_missing_file_is_named(arguments: list[str]) -> None:
    done = sandbox("run", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "/nonexistent." in done.stderr


def test_standard_input_is_passed_on(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("print(sum(int(input()) for _ in range(2)))\ninput()\n")
    done = sandbox("run", program, stdin="20\n22\n")
    assert (done.returncode, done.stdout) == (1, "42\n")
    assert done.stderr.endswith("EOFError: EOF when reading a line\n")
    assert sandbox("run", "-", stdin="print(repr(open(0).read()))").stdout == "''\n"


def test_files_go_in_and_come_out(tmp_path: Path) -> None:
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "data" / "sub" / "numbers.csv").write_text("1,2\n3,4\n")
    (tmp_path / "one.txt").write_bytes(b"\xff")
    program = (
        "import csv, os\n"
        "rows = [[int(x) for x in row] for row in csv.reader(open('data/sub/numbers.csv'))]\n"
        "os.makedirs('out/deep')\n"
        "open('out/deep/sum.txt', 'w').write(str(sum(map(sum, rows))))\n"
        "open('one.txt', 'ab').write(b'!')\n"
        "open('/tmp/scratch', 'w').write('x')\n"
    )
    output = tmp_path / "results" / "here"
    inputs = ["--input", tmp_path / "data", "--input", tmp_path / "one.txt"]
    done = sandbox("run", "-", *inputs, "--output", output, stdin=program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = {str(path.relative_to(output)): path.read_bytes() for path in output.rglob("*") if path.is_file()}
    assert found == {"out/deep/sum.txt": b"10", "one.txt": b"\xff!"}
    assert (tmp_path / "one.txt").read_bytes() == b"\xff"
    assert not (tmp_path / "out").exists()


def test_output_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = sandbox("run", "-", "--output", tmp_path / "file", stdin="open('x', 'w')")
    assert done.returncode == 2
    assert done.stderr.startswith("error: cannot write the files of the run: ")


def test_check_reports_locations() -> None:
    done = sandbox("check")
    assert done.returncode == 0, done.stderr
    assert "the sandbox works: " in done.stdout
    assert "sympy 1.14" in done.stdout
    assert "isolation of workers: seccomp, " in done.stdout


def test_clean_removes_the_prepared_guest(tmp_path: Path) -> None:
    kept = tmp_path / "torl" / "other"
    kept.mkdir(parents=True)
    directory = tmp_path / "torl" / "sandbox"
    directory.mkdir()
    (directory / "x.module").write_bytes(b"x")
    done = sandbox("clean", cache=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"removed {directory}\n")
    assert not directory.exists()
    assert kept.exists()
    assert sandbox("clean", cache=tmp_path).returncode == 0


def test_a_cache_that_cannot_be_written_is_an_error() -> None:
    done = sandbox("check", cache=Path("/proc"))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: cannot make the cache directory /proc/torl/sandbox")
