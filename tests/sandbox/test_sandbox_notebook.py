"""Cells of a notebook in the sandbox: what they show is what IPython shows.

`notebooks.json` was recorded with IPython 8.12.3 on Python 3.13 by `ipython_cells.py`, which the last test asks again where it is installed.
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
from torl_sandbox.cells import Cell, lines_of
from torl_sandbox.notebook import Notebook, dedented, notebook_traceback

RECORDED: list[dict[str, Any]] = json.loads((Path(__file__).parent / "notebooks.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(1, cpu_seconds=0.5, result_cache_bytes=0) as pool:
        yield pool


def visible(outcome: Execution) -> dict[str, Any]:
    """The recorded output of a cell."""
    lines = outcome.traceback.split("\n") if outcome.traceback else None
    stderr = outcome.stderr.removesuffix(f"{outcome.traceback}\n")
    rendered = {"stdout": outcome.stdout, "stderr": stderr, "value": outcome.value, "traceback": lines}
    return {name: text for name, text in rendered.items() if text not in ("", None)}


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded["cells"][-1][-25:])
def test_cell_output_equals_ipython(pool: SandboxPool, recorded: dict[str, Any]) -> None:
    notebook = Notebook(pool.session())
    *_, last = [notebook.run(cell) for cell in recorded["cells"]]
    assert {"cells": recorded["cells"], **visible(last)} == recorded
    assert last.ok is ("traceback" not in recorded)


def test_values_output_and_earlier_files_stay(pool: SandboxPool) -> None:
    notebook = Notebook(pool.session())
    assert notebook.run("x = 20\nx + 22").value == "42"
    outcome = notebook.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n1 / 0")
    assert (outcome.stdout, outcome.stderr[:44]) == ("out\n", f"err\n{'-' * 40}")
    assert (outcome.exception_line, notebook.run("x").value) == ("ZeroDivisionError: division by zero", "20")


def test_stopped_cell_is_counted(pool: SandboxPool) -> None:
    notebook = Notebook(pool.session())
    assert notebook.run("sum(range(10**18))", cpu_seconds=0.2).status is OutcomeStatus.TIMEOUT
    assert notebook.run("def f():\n    return 1 / 0").ok
    assert notebook.run("while True: pass").status is OutcomeStatus.TIMEOUT
    text = notebook.run("f()").traceback or ""
    assert "\nCell In[4], line 1\n----> 1 f()\n\nCell In[2], line 2, in f()\n" in text
    assert notebook.run("In[1], len(In)").value == "('sum(range(10**18))', 6)"


def test_frames_of_libraries_are_left_out(pool: SandboxPool) -> None:
    traceback = Notebook(pool.session()).run("import json\njson.loads('{')").traceback or ""
    assert traceback.split("\n")[2:6] == ["Cell In[1], line 2", "      1 import json", "----> 2 json.loads('{')", ""]
    assert traceback.endswith(
        "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    )


def test_frames_of_code_in_no_cell_are_left_out(pool: SandboxPool) -> None:
    traceback = Notebook(pool.session()).run("exec(compile('1 / 0', 'main_1.py', 'exec'))").traceback or ""
    assert traceback.split("\n")[2:] == [
        "Cell In[1], line 1",
        "----> 1 exec(compile('1 / 0', 'main_1.py', 'exec'))",
        "",
        "ZeroDivisionError: division by zero",
    ]


@pytest.mark.parametrize("cell", [f"#{'x' * 20_000}\n1 / 0", "x = 1\n" * 4000 + "1 / 0"])
def test_an_exception_in_a_long_cell_is_shown_as_in_a_script(pool: SandboxPool, cell: str) -> None:
    traceback = re.sub("<ipython-input-1-[0-9a-f]{12}>", "main.py", Notebook(pool.session()).run(cell).traceback or "")
    assert traceback == (pool.session().run(cell).traceback or "").removesuffix("\n")


def test_a_traceback_with_many_long_excerpts_is_shown_as_in_a_script(pool: SandboxPool) -> None:
    """Each frame shows the whole statement: thousands of lines."""
    numbers = "0,\n" * 3000
    cell = f"def f(n):\n return [\n{numbers} g(n - 1) if n else 1 / 0,\n]\ndef g(n):\n return f(n)\nf({{}})"
    shown = Notebook(pool.session()).run(cell.format(1)).traceback or ""
    assert shown.startswith("-----")
    assert shown.count(" 0,\n") >= 2 * 3000  # both frames of f
    long = Notebook(pool.session()).run(cell.format(60))
    assert (long.traceback or "").startswith("Traceback (most recent call last):\n")
    assert len(long.stderr) < 16 << 10
    # A chain of them, which a program can also write itself.
    frame = '  File "<ipython-input-1-aaaaaaaaaaaa>", line 2002, in f'
    section = "\n".join(["Traceback (most recent call last):", frame, "E: x"])
    chain = "\n\nDuring handling of the above exception, another exception occurred:\n\n".join([section] * 90)
    assert notebook_traceback(chain, {1: Cell(cell.format(60))}) == chain


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0c", "\u2028"], ids=repr)
def test_cells_are_dedented_line_by_line(end: str) -> None:
    starts = ["", " ", "  ", "\t", "a", " a", "  a", "\t a", "\x0ca"]
    for first, second, third in product(starts, repeat=3):
        cell = f"{first}{end}{second}{end}\n{third}"
        lines = lines_of(cell)
        while lines and lines[0].isspace():
            del lines[0]
        indentation = re.match(r"[ \t]*", lines[0])[0] if lines else ""  # type: ignore[index]
        assert dedented(cell) == ("".join(line.removeprefix(indentation) for line in lines) or cell)


def test_raising_repr_fails_the_cell_and_keeps_the_object(pool: SandboxPool) -> None:
    notebook = Notebook(pool.session())
    outcome = notebook.run("class A:\n    def __repr__(self): raise ValueError('no repr')\n[A()]")
    assert (outcome.traceback or "").split("\n")[1:] == [
        "ValueError                                Traceback (most recent call last)",
        "Cell In[1], line 2, in A.__repr__(self)",
        "----> 2 def __repr__(self): raise ValueError('no repr')",
        "",
        "ValueError: no repr",
    ]
    assert (outcome.value, notebook.run("type(_[0]), list(Out)").value) == (None, "(__main__.A, [1])")


def test_a_warning_of_syntax_comes_twice_as_there(pool: SandboxPool) -> None:
    script = pool.run("x = '\\d'").stderr.partition(" ")[2]
    words = script.splitlines()[0]
    name = "<ipython-input-1-a9a7d4ff7b2c>:1:"
    stderr = re.sub("-[0-9a-f]{12}>", "-a9a7d4ff7b2c>", Notebook(pool.session()).run("x = '\\d'").stderr)
    assert stderr == f"<>:1: {words}\n{name} {script}"


def test_damage_to_notebook_state_stays_in_its_notebook(pool: SandboxPool) -> None:
    notebook = Notebook(pool.session())
    notebook.run("In.clear(); Out = None; _oh = 5; import builtins; del builtins.display")
    notebook.run("import _torl_driver\ndel _torl_driver.Shown, _torl_driver.described")
    assert Notebook(pool.session()).run("display(6 * 7)\n6 * 7, len(In)").value == "(42, 2)"
    assert pool.run("6 * 7", value=True).value == "42"


async def test_coroutines_run_cells_too(pool: SandboxPool) -> None:
    outcome = await Notebook(pool.session()).run_async("undefined")
    assert (outcome.traceback or "").split("\n")[2:4] == ["Cell In[1], line 1", "----> 1 undefined"]


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
    shown = Notebook(pool.session()).run(source).traceback or ""
    assert f"\n----> {line}     1 / 0\n" in shown
    assert (
        Notebook(pool.session()).run(f"  x = 'a{text}  b'\n  x", value=True).value == repr(f"a{text}  b")
        or "\r" in text
    )
