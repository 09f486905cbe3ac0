"""Outcomes of runs: every status, the exception as CPython shows it, output kept up to its limit."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from sandboxes import GUESTS, OVERSHOOT_SECONDS
from torl_sandbox import OutcomeStatus, SandboxPool

INTERPRETER_BYTES = 192 << 20


@pytest.fixture(scope="module", params=GUESTS)
def pool(request: pytest.FixtureRequest) -> Iterator[SandboxPool]:
    with SandboxPool(1, cpu_seconds=0.5, wall_seconds=30, memory_bytes=320 << 20, **request.param) as pool:
        yield pool


def test_program_succeeds(pool: SandboxPool) -> None:
    outcome = pool.run("import sys\nprint('π', 1 + 1)\nprint('to stderr', file=sys.stderr)")
    assert (outcome.status, outcome.stdout, outcome.stderr) == (OutcomeStatus.OK, "π 2\n", "to stderr\n")
    assert (outcome.exception_type, outcome.exception_line, outcome.traceback) == (None, None, None)
    assert outcome.cpu_seconds > 0
    assert outcome.wall_seconds > 0
    assert 1 << 20 < outcome.peak_memory_bytes < INTERPRETER_BYTES


def test_an_exception_as_cpython_prints_it(pool: SandboxPool) -> None:
    outcome = pool.run("def f(x):\n    return 1 / x\n\nprint('before')\nf(0)\n")
    assert (outcome.status, outcome.stdout) == (OutcomeStatus.ERROR, "before\n")
    assert (outcome.exception_type, outcome.exception_line) == (
        "ZeroDivisionError",
        "ZeroDivisionError: division by zero",
    )
    assert outcome.traceback == (
        "Traceback (most recent call last):\n"
        '  File "main.py", line 5, in <module>\n'
        "    f(0)\n"
        "    ~^^^\n"
        '  File "main.py", line 2, in f\n'
        "    return 1 / x\n"
        "           ~~^~~\n"
        "ZeroDivisionError: division by zero\n"
    )
    assert outcome.stderr == outcome.traceback


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("print(x)", "NameError: name 'x' is not defined"),
        (
            "import math\nmath.sqr(2)",
            "AttributeError: module 'math' has no attribute 'sqr'. Did you mean '.sqrt' instead of '.sqr'?",
        ),
        ("[][1]", "IndexError: list index out of range"),
        ("{}['a']", "KeyError: 'a'"),
        ("'a' + 1", 'TypeError: can only concatenate str (not "int") to str'),
        ("int('x')", "ValueError: invalid literal for int() with base 10: 'x'"),
        ("import nonsense", "ModuleNotFoundError: No module named 'nonsense'"),
        ("assert 1 == 2, 'no'", "AssertionError: no"),
        ("input()", "EOFError: EOF when reading a line"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("class Odd(Exception): pass\nraise Odd('x')", "Odd: x"),
        ("def f(): return f()\nf()", "RecursionError: maximum recursion depth exceeded"),
        ("def f(:\n  pass", "SyntaxError: invalid syntax"),
        ("  print(1)", "IndentationError: unexpected indent"),
        ("print('a", "SyntaxError: unterminated string literal (detected at line 1)"),
        ("x = 1\0", "SyntaxError: source code string cannot contain null bytes"),
    ],
)
def test_last_line_names_the_error(pool: SandboxPool, code: str, line: str) -> None:
    outcome = pool.run(code)
    assert (outcome.status, outcome.exception_line) == (OutcomeStatus.ERROR, line)
    assert outcome.exception_type == line.partition(":")[0]


LINES = {
    "a group": "raise ExceptionGroup('both', [ValueError('a'), KeyError('b')])",
    "a group in a group": "raise BaseExceptionGroup('x', [ExceptionGroup('y', [OSError(1, 'z')]), SystemExit(1)])",
    "an exception with notes": "e = ValueError('a')\ne.add_note('first')\ne.add_note('second: x')\nraise e",
    "a message of two lines": "raise RuntimeError('first\\nsecond')",
    "a qualified name": "import json\njson.loads('{')",
    "a class in a class": "class A:\n    class B(Exception): pass\nraise A.B('x')",
    "no message": "raise KeyError",
    "a syntax error with a note": "e = SyntaxError('bad', ('f.py', 1, 2, 'x y', 1, 3))\ne.add_note('note')\nraise e",
    "an exception behind another": "try:\n    1/0\nexcept Exception as error:\n    raise ValueError('b') from error",
}


@pytest.mark.parametrize("name", LINES)
def test_the_line_of_an_exception_is_the_one_with_type_and_message(pool: SandboxPool, name: str) -> None:
    program = f"try:\n{textwrap.indent(LINES[name], '    ')}\nexcept BaseException as error:\n    import traceback\n"
    # What `traceback` prints without frames begins with the place of a syntax error, indented, and continues with notes and groups.
    program += "    lines = ''.join(traceback.format_exception_only(error)).splitlines()\n"
    program += "    print(next(line for line in lines if not line.startswith(' ')))"
    natively = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert pool.run(LINES[name]).exception_line == natively.stdout.rstrip("\n").removeprefix("__main__.")


def test_the_line_of_an_exit_is_its_first(pool: SandboxPool) -> None:
    outcome = pool.run("import sys\nsys.exit('a\\nb')")
    assert (outcome.exception_line, outcome.stderr) == ("SystemExit: a", "a\nb\n")


def test_a_syntax_error_shows_the_line(pool: SandboxPool) -> None:
    outcome = pool.run("x = 1\nif x\n    print(x)\n")
    assert outcome.traceback == ("  File \"main.py\", line 2\n    if x\n        ^\nSyntaxError: expected ':'\n")


def test_chained_exceptions_show_both(pool: SandboxPool) -> None:
    outcome = pool.run("try:\n    {}['a']\nexcept KeyError as error:\n    raise ValueError('b') from error")
    assert outcome.exception_line == "ValueError: b"
    assert "KeyError: 'a'\n\nThe above exception was the direct cause" in (outcome.traceback or "")


def test_frames_of_the_library_are_left_out(pool: SandboxPool) -> None:
    outcome = pool.run("import json\njson.loads('{')")
    assert outcome.exception_type == "JSONDecodeError"
    frames = [line for line in (outcome.traceback or "").splitlines() if line.startswith("  File")]
    assert frames == ['  File "main.py", line 2, in <module>']


def test_a_caught_exception_can_be_printed(pool: SandboxPool) -> None:
    outcome = pool.run("import traceback\ntry:\n    1/0\nexcept Exception:\n    traceback.print_exc()")
    assert outcome.ok
    assert outcome.stderr.splitlines()[1:] == [
        '  File "main.py", line 3, in <module>',
        "    1/0",
        "    ~^~",
        "ZeroDivisionError: division by zero",
    ]


@pytest.mark.parametrize(
    ("code", "status", "stderr"),
    [
        ("import sys\nsys.exit()", OutcomeStatus.OK, ""),
        ("import sys\nsys.exit(0)", OutcomeStatus.OK, ""),
        ("import sys\nsys.exit(3)", OutcomeStatus.ERROR, ""),
        ("import sys\nsys.exit('gave up')", OutcomeStatus.ERROR, "gave up\n"),
        ("exit()", OutcomeStatus.OK, ""),
        ("quit(1)", OutcomeStatus.ERROR, ""),
        ("import os\nos._exit(0)", OutcomeStatus.OK, ""),
        ("import os\nos._exit(4)", OutcomeStatus.ERROR, ""),
    ],
)
def test_exits(pool: SandboxPool, code: str, status: OutcomeStatus, stderr: str) -> None:
    outcome = pool.run(f"print('first')\n{code}\nprint('never')")
    assert (outcome.status, outcome.stdout, outcome.stderr) == (status, "first\n", stderr)


def test_there_is_a_home_directory(pool: SandboxPool) -> None:
    code = "import os, pathlib\nprint(os.environ['HOME'], pathlib.Path.home(), os.path.expanduser('~/a'))"
    assert pool.run(code).stdout == "/work /work /work/a\n"


def test_a_main_program(pool: SandboxPool) -> None:
    code = "def main():\n    print(__name__, __file__)\nif __name__ == '__main__':\n    main()"
    assert pool.run(code).stdout == "__main__ main.py\n"


def test_functions_classes_and_pickles_find_their_module(pool: SandboxPool) -> None:
    code = (
        "import pickle, dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int\n"
        "print(pickle.loads(pickle.dumps(P(3))))"
    )
    assert pool.run(code).stdout == "P(x=3)\n"


@pytest.mark.parametrize("code", ["", "\n", "# nothing", "\ufeff", "pass"])
def test_code_that_does_nothing(pool: SandboxPool, code: str) -> None:
    outcome = pool.run(code)
    assert (outcome.status, outcome.stdout, outcome.stderr) == (OutcomeStatus.OK, "", "")


def test_a_megabyte_of_code(pool: SandboxPool) -> None:
    code = "x = 0\n" + "x += 1\n" * 20_000 + f"# {'-' * 900_000}\nprint(x)"
    with SandboxPool(1, cpu_seconds=10) as patient:
        assert patient.run(code).stdout == "20000\n"


def test_exit_handlers_run(pool: SandboxPool) -> None:
    code = (
        "import atexit\natexit.register(print, 'at exit')\nclass Last:\n    def __del__(self): print('deleted')\n"
        "last = Last()\nprint('end')"
    )
    assert pool.run(code).stdout == "end\nat exit\ndeleted\n"


def test_output_of_every_kind(pool: SandboxPool) -> None:
    outcome = pool.run("import sys\nsys.stdout.buffer.write(b'\\xff\\x00a')\nsys.stdout.write('\\x00\\n')")
    assert (outcome.status, outcome.stdout) == (OutcomeStatus.OK, "\ufffd\0a\0\n")
    outcome = pool.run("print('\\ud800')")
    assert (outcome.status, outcome.exception_type) == (OutcomeStatus.ERROR, "UnicodeEncodeError")
    outcome = pool.run("x = '\ud800'")
    assert (outcome.status, outcome.exception_type) == (OutcomeStatus.ERROR, "SyntaxError")


# --- limits -----------------------------------------------------------------------------------------------


def test_timeout_keeps_printed_output(pool: SandboxPool) -> None:
    outcome = pool.run("print('a')\nprint('b', end='')\nwhile True: pass")
    assert (outcome.status, outcome.stdout, outcome.exception_type) == (OutcomeStatus.TIMEOUT, "a\nb", None)
    assert 0.5 <= outcome.cpu_seconds < 0.5 + OVERSHOOT_SECONDS


def test_output_limit_keeps_the_beginning() -> None:
    with SandboxPool(1, output_bytes=1000) as pool:
        outcome = pool.run("import sys\nprint('x' * 600)\nsys.stderr.write('y' * 30_000_000)\nprint('never')")
        assert (outcome.status, outcome.stdout) == (OutcomeStatus.OUTPUT_LIMIT, "x" * 600 + "\n")
        assert outcome.stderr == "y" * 399
        outcome = pool.run("while True:\n    try:\n        print('x' * 100)\n    except BaseException:\n        pass")
        assert (outcome.status, len(outcome.stdout)) == (OutcomeStatus.OUTPUT_LIMIT, 1000)
        outcome = pool.run("print('x' * 999)")
        assert (outcome.status, len(outcome.stdout)) == (OutcomeStatus.OK, 1000)


def test_thirty_megabytes_of_output() -> None:
    with SandboxPool(1, output_bytes=40 << 20) as pool:
        outcome = pool.run("print('0123456789' * 3_000_000)")
        assert (outcome.status, len(outcome.stdout)) == (OutcomeStatus.OK, 30_000_001)
        assert pool.run("print(1)").stdout == "1\n"


def test_memory_limit(pool: SandboxPool) -> None:
    outcome = pool.run("print('start')\nx = []\nwhile True: x.append(bytes(1_000_000))")
    assert (outcome.status, outcome.stdout) == (OutcomeStatus.MEMORY, "start\n")
    assert (outcome.exception_type, outcome.exception_line) == ("MemoryError", "MemoryError")
    assert 300 << 20 < outcome.peak_memory_bytes <= 320 << 20


def test_memory_error_may_be_caught(pool: SandboxPool) -> None:
    outcome = pool.run("try:\n    x = [0] * 10**9\nexcept MemoryError:\n    print('caught')")
    assert (outcome.status, outcome.stdout) == (OutcomeStatus.OK, "caught\n")


def test_wall_clock_limit_backs_up_the_cpu_limit() -> None:
    with SandboxPool(1, cpu_seconds=1000, wall_seconds=0.3) as pool:
        outcome = pool.run("print('x')\nwhile True: pass")
        assert (outcome.status, outcome.stdout) == (OutcomeStatus.TIMEOUT, "x\n")
        assert outcome.wall_seconds >= 0.3
        assert outcome.cpu_seconds < 0.3 + OVERSHOOT_SECONDS  # a busy machine may take any time for that
        assert pool.stats()["workers_replaced"] == 0


# --- determinism ------------------------------------------------------------------------------------------

RANDOM = (
    "import random, numpy, os, time, uuid, secrets, datetime\n"
    "print(random.random(), numpy.random.rand(), numpy.random.default_rng().random(), os.urandom(8).hex())\n"
    "print(time.time(), time.monotonic(), datetime.datetime.now(), uuid.uuid4(), secrets.token_hex(8))\n"
    "print(hash('a'), hash((1, 'b')), id(object()), {'x', 'y', 'z', 1.5})\n"
)


def test_equal_seeds_give_equal_outcomes() -> None:
    with SandboxPool(2, result_cache_bytes=0) as pool:
        outcomes = [outcome.stdout for outcome in pool.run_batch([RANDOM] * 6, seed=7)]
        other = pool.run(RANDOM, seed=8).stdout
    assert len(set(outcomes)) == 1
    assert outcomes[0].splitlines()[0] != other.splitlines()[0]
    first, second = (set(text.splitlines()[0].split()) for text in (outcomes[0], other))
    assert not first & second


def test_seed_is_the_seed_of_random(pool: SandboxPool) -> None:
    import random

    assert pool.run("import random\nprint(random.random())", seed=5).stdout == f"{random.Random(5).random()}\n"


def test_time_passes_when_waited_for(pool: SandboxPool) -> None:
    code = "import time\nt = time.time()\ntime.sleep(3600)\nprint(round(time.time() - t))"
    outcome = pool.run(code)
    assert (outcome.status, outcome.stdout) == (OutcomeStatus.OK, "3600\n")  # within the limit on wall time
    assert (
        pool.run("import time\nt = time.time()\nwhile time.time() - t < 0.05: pass\nprint('done')").stdout == "done\n"
    )
