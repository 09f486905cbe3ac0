"""Cells of a notebook in the sandbox: they show the values that IPython shows, and fail as parts of a session do.

`notebooks.json` was recorded with IPython 8.12.3 by `ipython_cells.py`, which the last test asks again where it is installed.
"""

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from torl_sandbox import Execution, OutcomeStatus, SandboxPool
from torl_sandbox.notebook import Notebook, dedented

RECORDED: list[dict[str, Any]] = json.loads((Path(__file__).parent / "notebooks.json").read_text(encoding="utf-8"))

IMPORTS = "from collections import *\nfrom types import *\nclass A: pass\n"
NOT_BROKEN = [
    "OrderedDict(a=1)", "defaultdict(int, a=1)", "deque([1], 5)", "Counter('aba')", "UserList([1])",
    "namedtuple('P', 'x y')(1, [2])", "MappingProxyType({'a': 1})", "SimpleNamespace(a=1)", "super(int, 3)",
    "[A, int, ValueError('x', 3)]", "[[], (), {}, set(), frozenset(), [()]]", "'x ' * 100",
]  # fmt: skip
FAILING = [
    ["x = 1\n1 / 0"],
    ["def f(x, *args, y=2):\n    a = 1\n    return a / x\n", "x = 0\n\n\nf(x)\nz = 2"],
    ["a\n"],
    ["import math\nmath.sqr(2)"],
    ["try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise ValueError('bad') from e"],
    ["try:\n    1/0\nexcept ZeroDivisionError:\n    int('x')"],
    ["x = (1 +\n     2 +\n     3 / 0)\n"],
    ["raise KeyboardInterrupt"],
    ["import warnings\nwarnings.simplefilter('error')\nwarnings.warn('raised')"],
    ["import sys\nsys.exit(3)"],
    ["x = 1", "raise SystemExit('bye')"],
    ["def f():\n    raise ExceptionGroup('g', [ValueError(1)])", "try:\n    1/0\nexcept Exception:\n    f()"],
    ["e = ValueError('v')\ne.add_note('two\\nlines')\nraise e"],
    ["import json\njson.loads('{')"],
    ["exec(compile('1 / 0', 'main_1.py', 'exec'))"],
    ["\n\n  1/0"],
    ["x = 1\n  y = 2"],
    ["return 5"],
    ["x = 'abc"],
    ["def f(a):\n    return eval('1 +')", "y = 2\nf(1)"],
    ["whille True:\n    pass"],
    ["def g():\n    await f()"],
    [f"#{'x' * 20_000}\n1 / 0"],
    ["x = 1\n" * 4000 + "1 / 0"],
]


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(1, cpu_seconds=0.5, result_cache_bytes=0) as pool:
        yield pool


def visible(outcome: Execution) -> dict[str, Any]:
    """The recorded output of a cell."""
    rendered = {"stdout": outcome.stdout, "stderr": outcome.stderr, "value": outcome.value}
    return {name: text for name, text in rendered.items() if text not in ("", None)}


def with_our_names(text: str) -> str:
    """IPython's text with the sandbox's names of the cells' files."""
    text = re.sub("<ipython-input-1-[0-9a-f]{12}>", "main.py", text)
    return re.sub(r"<ipython-input-(\d+)-[0-9a-f]{12}>", r"main_\1.py", text)


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded["cells"][-1][-25:])
def test_cell_output_equals_ipython(pool: SandboxPool, recorded: dict[str, Any]) -> None:
    notebook = Notebook(pool.session())
    *_, last = [notebook.run(cell) for cell in recorded["cells"]]
    shown = {name: with_our_names(text) for name, text in recorded.items() if name != "cells"}
    assert (visible(last), last.ok) == (shown, True)


@pytest.mark.parametrize("expression", NOT_BROKEN)
def test_other_values_have_their_repr(pool: SandboxPool, expression: str) -> None:
    cell = IMPORTS + expression
    assert Notebook(pool.session()).run(cell).value == pool.run(cell, value=True).value


def test_long_mappings_of_the_library_are_broken_into_lines(pool: SandboxPool) -> None:
    """With the `repr` of the class, which IPython writes otherwise."""
    cell = "from collections import defaultdict\ndefaultdict(list, {i: [i] for i in range(30)})"
    lines = (Notebook(pool.session()).run(cell).value or "").split("\n")
    assert lines[:2] == ["defaultdict(<class 'list'>, {0: [0],", f"{'1: [1],':>36}"]
    assert (len(lines), lines[-1].lstrip()) == (30, "29: [29]})")


@pytest.mark.parametrize("cells", FAILING, ids=lambda cells: cells[-1][-25:])
def test_a_cell_fails_as_a_part_of_a_session(pool: SandboxPool, cells: list[str]) -> None:
    notebook, session = Notebook(pool.session()), pool.session()
    *_, failed = [notebook.run(cell) for cell in cells]
    *_, expected = [session.run(dedented(cell)) for cell in cells]
    assert not failed.ok
    assert facts(failed) == facts(expected)


def facts(outcome: Execution) -> tuple[Any, ...]:
    return outcome.status, outcome.stdout, outcome.stderr, outcome.traceback, outcome.exception_line


def test_a_traceback_names_the_cells(pool: SandboxPool) -> None:
    notebook = Notebook(pool.session())
    notebook.run("def f(x):\n    return 1 / x")
    assert notebook.run("y = 0\nf(y)").traceback == (
        "Traceback (most recent call last):\n"
        '  File "main_2.py", line 2, in <module>\n    f(y)\n    ~^^^\n'
        '  File "main.py", line 2, in f\n    return 1 / x\n           ~~^~~\n'
        "ZeroDivisionError: division by zero\n"
    )


@pytest.mark.parametrize(
    "cell", ["%matplotlib inline\nx = 3", "!pip install numpy", "x = 1\nif x:\n    !ls", "%%time\nx = 1"]
)
def test_a_magic_is_a_syntax_error_with_a_note(pool: SandboxPool, cell: str) -> None:
    note = "Magics (%) and shell commands (!) are not available: write Python."
    outcome = Notebook(pool.session()).run(cell)
    assert outcome.exception_line == "SyntaxError: invalid syntax"
    assert outcome.traceback == f"{pool.session().run(cell).traceback}{note}\n"
    assert note not in Notebook(pool.session()).run("x = = 3 % 2").stderr


def test_values_output_and_earlier_files_stay(pool: SandboxPool) -> None:
    notebook = Notebook(pool.session())
    assert notebook.run("x = 20\nx + 22").value == "42"
    outcome = notebook.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n1 / 0")
    assert (outcome.stdout, outcome.stderr[:14]) == ("out\n", "err\nTraceback ")
    assert (outcome.exception_line, notebook.run("x").value) == ("ZeroDivisionError: division by zero", "20")


def test_stopped_cell_is_counted(pool: SandboxPool) -> None:
    notebook = Notebook(pool.session())
    assert notebook.run("1").value == "1"
    assert notebook.run("while True: pass").status is OutcomeStatus.TIMEOUT
    assert notebook.run("3").value == "3"
    assert notebook.run("Out").value == "{1: 1, 3: 3}"


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0c", "\u2028"], ids=repr)
def test_cells_are_dedented_line_by_line(end: str) -> None:
    starts = ["", " ", "  ", "\t", "a", " a", "  a", "\t a", "\x0ca"]
    for first, second, third in product(starts, repeat=3):
        cell = f"{first}{end}{second}{end}\n{third}"
        lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", cell)
        while lines and lines[0].isspace():
            del lines[0]
        indentation = re.match(r"[ \t]*", lines[0])[0] if lines else ""  # type: ignore[index]
        assert dedented(cell) == ("".join(line.removeprefix(indentation) for line in lines) or cell)


def test_raising_repr_fails_the_cell_and_keeps_the_object(pool: SandboxPool) -> None:
    notebook = Notebook(pool.session())
    outcome = notebook.run("class A:\n    def __repr__(self): raise ValueError('no repr')\n[A()]")
    assert (outcome.value, outcome.exception_line) == (None, "ValueError: no repr")
    assert notebook.run("type(_[0]).__name__, list(Out)").value == "('A', [1])"


def test_warnings_of_syntax_are_a_scripts_and_a_cell_has_no_file(pool: SandboxPool) -> None:
    notebook = Notebook(pool.session())
    assert notebook.run("x = '\\d'").stderr == pool.run("x = '\\d'").stderr != ""
    assert str(notebook.run("__file__").exception_line).startswith("NameError: name '__file__' is not defined")


def test_damage_to_notebook_state_stays_in_its_notebook(pool: SandboxPool) -> None:
    notebook = Notebook(pool.session())
    notebook.run("Out.clear(); Out = None; _ = 5; import builtins; del builtins.display")
    notebook.run("import _torl_driver\ndel _torl_driver.Shown, _torl_driver.described")
    assert Notebook(pool.session()).run("display(6 * 7)\n6 * 7, len(Out)").value == "(42, 0)"
    assert pool.run("6 * 7", value=True).value == "42"


async def test_coroutines_run_cells_too(pool: SandboxPool) -> None:
    outcome = await Notebook(pool.session()).run_async("undefined")
    assert (outcome.traceback or "").startswith(
        'Traceback (most recent call last):\n  File "main.py", line 1, in <module>\n'
    )


@pytest.mark.skipif(importlib.util.find_spec("IPython") is None, reason="IPython is not installed")
def test_the_recorded_texts_are_ipythons() -> None:
    program = Path(__file__).parent / "ipython_cells.py"
    request = json.dumps(RECORDED)
    done = subprocess.run(
        [sys.executable, program], input=request, capture_output=True, text=True, check=True, timeout=600
    )
    assert json.loads(done.stdout) == RECORDED


@pytest.mark.parametrize("text", ["\u2028", "\u0085", "\x0c", "\x1c", "\x0b", "\r\n", "\r"], ids=repr)
def test_lines_are_those_of_python(pool: SandboxPool, text: str) -> None:
    source = f"x = '''a{text}b'''\nif x:\n    1 / 0"
    line = 4 if "\r" in text else 3
    assert f"line {line}, in <module>\n    1 / 0\n    ~~^~~\n" in (pool.run(source).traceback or "")
    assert Notebook(pool.session()).run(source).traceback == pool.run(source).traceback
    shown = Notebook(pool.session()).run(f"  x = 'a{text}  b'\n  x").value
    assert shown == repr(f"a{text}  b") or "\r" in text
