"""Standard input, and the value of the last statement."""

from collections.abc import Iterator

import pytest

from torl_sandbox import OutcomeStatus, SandboxPool


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(1, cpu_seconds=5) as pool:
        yield pool


@pytest.mark.parametrize(
    ("code", "stdin", "stdout"),
    [
        ("print(input('? ') + input())", "one\ntwo\n", "? onetwo\n"),
        ("import sys\nprint(sys.stdin.read().split())", "1 2\n3", "['1', '2', '3']\n"),
        ("import sys\nprint([line for line in sys.stdin])", "a\nb", "['a\\n', 'b']\n"),
        (
            "from sys import stdin\nprint(stdin.buffer.readline(), stdin.buffer.read(1), stdin.read())",
            "a\nbc",
            "b'a\\n' b'b' c\n",
        ),
        ("import os\nprint(os.read(0, 3), os.read(0, 9), os.read(0, 9))", "abcde", "b'abc' b'de' b''\n"),
        ("print(open(0, 'rb').read())", b"\0\xff\n", "b'\\x00\\xff\\n'\n"),
        ("import sys\nprint(sys.stdin.read(1), sys.stdin.isatty(), sys.stdin.encoding)", "π", "π False utf-8\n"),
        ("import fileinput\nprint(list(fileinput.input()))", "a\n", "['a\\n']\n"),
        ("import sys\nprint(len(sys.stdin.read()))", "x" * 3_000_000, "3000000\n"),
    ],
)
def test_standard_input_is_read(pool: SandboxPool, code: str, stdin: str | bytes, stdout: str) -> None:
    outcome = pool.run(code, stdin=stdin)
    assert (outcome.status, outcome.stdout) == (OutcomeStatus.OK, stdout), outcome


def test_input_ends(pool: SandboxPool) -> None:
    for stdin, code in (("", "input()"), ("a", "input()\ninput()"), ("a\n", "input()\ninput()")):
        outcome = pool.run(code, stdin=stdin)
        assert outcome.exception_line == "EOFError: EOF when reading a line"
    assert pool.run("input()").exception_type == "EOFError"
    assert pool.run("import sys\nprint(repr(sys.stdin.read()))").stdout == "''\n"


def test_binary_input_raises_in_the_reading_code(pool: SandboxPool) -> None:
    assert pool.run("input()", stdin=b"\xff\n").exception_type == "UnicodeDecodeError"


def test_input_belongs_to_one_run(pool: SandboxPool) -> None:
    first, second = pool.run_batch(["print(input())", "print(input(), input())"], stdin="1\n2\n")
    assert (first.stdout, second.stdout) == ("1\n", "1 2\n")
    assert pool.run("print(input())").exception_type == "EOFError"


def test_a_stream_has_no_place_to_stand_at(pool: SandboxPool) -> None:
    code = "import errno, os\nfor f in (lambda: os.lseek(0, 0, 0), lambda: os.pread(0, 1, 0), lambda: os.write(0, b'x')):\n    try: f()\n    except OSError as e: print(errno.errorcode[e.errno])"
    assert pool.run(code, stdin="abc").stdout == "ESPIPE\nESPIPE\nEBADF\n"


def test_too_much_input_is_the_callers_mistake(pool: SandboxPool) -> None:
    with pytest.raises(ValueError, match="stdin must be at most"):
        pool.run("pass", stdin=bytes((256 << 20) + 1))


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("1 + 1", "2"),
        ("x = 3\nx", "3"),
        ("'text'", "'text'"),
        ("'''only a docstring'''", "'only a docstring'"),
        ("[1, 2][0]; {'a': None}", "{'a': None}"),
        ("None", None),
        ("print(1)", None),
        ("x = 1", None),
        ("5\nx = 1", None),
        ("if True:\n    5", None),
        ("for i in range(3): i", None),
        ("def f(): 5\n", None),
        ("", None),
        ("# nothing", None),
        ("(yield_ := 7)", "7"),
        ("1;", "1"),
        ("1  # a comment\n\n\n", "1"),
        ("lambda: 0", "<function <lambda> at 0x"),
        ("from __future__ import annotations\n2", "2"),
        ("class A:\n    def __repr__(self): return ''\nA()", ""),
        ("import sympy\nsympy.symbols('x')**2", "x**2"),
        ("import numpy\nnumpy.arange(3)", "array([0, 1, 2])"),
        ("import sys\nsys.displayhook = lambda value: 1 / 0\n5", "5"),
        ("import builtins\nbuiltins.repr = None\n5", "5"),
        ("'\\ud800'", "'\\ud800'"),
        ("'é'", "'é'"),
    ],
)
def test_the_value_of_the_last_statement(pool: SandboxPool, code: str, value: str | None) -> None:
    outcome = pool.run(code, value=True)
    assert outcome.ok, outcome
    if value is not None and value.endswith("0x"):
        assert outcome.value is not None
        assert outcome.value.startswith(value)
    else:
        assert outcome.value == value
    assert pool.run(code).value is None


def test_printing_and_value_are_apart(pool: SandboxPool) -> None:
    outcome = pool.run("print('out')\nprint('more') or 7", value=True)
    assert (outcome.stdout, outcome.value) == ("out\nmore\n", "7")


def test_a_long_value_is_cut(pool: SandboxPool) -> None:
    value = pool.run("'x' * 3_000_000", value=True).value
    assert value is not None
    assert (len(value), value[:2]) == (1 << 20, "'x")


def test_an_error_in_repr_is_the_runs(pool: SandboxPool) -> None:
    outcome = pool.run("class A:\n    def __repr__(self):\n        return 1 / 0\n\nA()", value=True)
    assert (outcome.status, outcome.value) == (OutcomeStatus.ERROR, None)
    assert outcome.traceback == (
        "Traceback (most recent call last):\n"
        '  File "main.py", line 5, in <module>\n'
        "    A()\n"
        "    ~^^\n"
        '  File "main.py", line 3, in __repr__\n'
        "    return 1 / 0\n"
        "           ~~^~~\n"
        "ZeroDivisionError: division by zero\n"
    )
    assert outcome.stderr == outcome.traceback
    assert pool.run("class A:\n    def __repr__(self): return 5\nA()", value=True).exception_type == "TypeError"
    assert pool.run("class A:\n    def __repr__(self): raise SystemExit(0)\nA()", value=True).status is OutcomeStatus.OK
    assert pool.run("class A:\n    def __repr__(self):\n        while True: pass\nA()", value=True).status is (
        OutcomeStatus.TIMEOUT
    )


BROKEN = [
    "1 / 0",
    "def f(x):\n    return 1 / x\n\nf(2)\nf(0)",
    "undefined_nam",
    "x = (1 +\n",
    "return 5",
    "print(1)\n1 +",
    "print(1)\nawait x",
    "print(1)\n(yield)",
    "nonlocal x\n5",
    "x = 1\nglobal x\nx",
    "[i for i in 5]",
    "{}['key']",
    "import sys\nsys.exit(3)",
    "raise ValueError('x') from KeyError('y')",
    "5 is 5",
    "'\\d'",
    "assert (1, 'x')",
    "\0",
    "def f(:\n    pass",
    "  5",
    "def f(): return f()\nf()",
]


@pytest.mark.parametrize("code", BROKEN)
def test_asking_for_the_value_changes_nothing_else(pool: SandboxPool, code: str) -> None:
    with_value, without = pool.run(code, value=True), pool.run(code)
    assert with_value.status is without.status
    assert (with_value.stdout, with_value.stderr) == (without.stdout, without.stderr)
    assert with_value.traceback == without.traceback
