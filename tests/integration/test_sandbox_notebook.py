"""Cells of a notebook in the sandbox: tracebacks as IPython shows them.

`notebooks.json` was recorded with IPython 8.12.3 (`InteractiveShell`, colors "NoColor"), whose texts the last test asks for again where
it is installed.
"""

import contextlib
import importlib.util
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxes import KEPT
from torl.sandbox import OutcomeStatus, SandboxPool
from torl.sandbox.notebook import Notebook

RECORDED: list[dict[str, Any]] = json.loads((Path(__file__).parent / "notebooks.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(1, cpu_seconds=0.5, **KEPT) as pool:
        yield pool


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded["cells"][-1][:20])
def test_a_traceback_is_ipythons_to_the_letter(pool: SandboxPool, recorded: dict[str, Any]) -> None:
    notebook = Notebook(pool.session())
    *_, last = [notebook.run(cell) for cell in recorded["cells"]]
    assert last.traceback is not None
    assert last.traceback.split("\n") == recorded["traceback"]
    assert last.stderr == f"{last.traceback}\n"


def test_values_output_and_what_was_written_before_stay(pool: SandboxPool) -> None:
    notebook = Notebook(pool.session())
    assert notebook.run("x = 20\nx + 22").value == "42"
    outcome = notebook.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n1 / 0")
    assert (outcome.stdout, outcome.stderr[:44]) == ("out\n", f"err\n{'-' * 40}")
    assert (outcome.exception_line, notebook.run("x").value) == ("ZeroDivisionError: division by zero", "20")


def test_a_stopped_cell_that_left_nothing_does_not_shift_the_numbers_of_those_behind_it(pool: SandboxPool) -> None:
    notebook = Notebook(pool.session())
    assert notebook.run("sum(range(10**18))", cpu_seconds=0.2).status is OutcomeStatus.TIMEOUT
    assert notebook.run("def f():\n    return 1 / 0").ok
    assert notebook.run("while True: pass").status is OutcomeStatus.TIMEOUT
    told = notebook.run("f()").traceback or ""
    assert "\nCell In[3], line 1\n----> 1 f()\n\nCell In[1], line 2, in f()\n" in told


def test_frames_of_libraries_are_left_out(pool: SandboxPool) -> None:
    told = Notebook(pool.session()).run("import json\njson.loads('{')").traceback or ""
    assert told.split("\n")[2:6] == ["Cell In[1], line 2", "      1 import json", "----> 2 json.loads('{')", ""]
    assert told.endswith("JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)")


@pytest.mark.parametrize(
    "cell",
    [
        "raise ExceptionGroup('g', [ValueError(1)])",
        f"#{'x' * 20_000}\n1 / 0",
        "x = 1\n" * 4000 + "1 / 0",
        "exec(compile('1 / 0', 'main_7.py', 'exec'))",
    ],
)
def test_what_cannot_be_shown_so_is_shown_as_in_a_script(pool: SandboxPool, cell: str) -> None:
    told = Notebook(pool.session()).run(cell)
    assert told.traceback == pool.session().run(cell).traceback.removesuffix("\n")  # type: ignore[union-attr]


async def test_coroutines_run_cells_too(pool: SandboxPool) -> None:
    outcome = await Notebook(pool.session()).run_async("undefined")
    assert (outcome.traceback or "").split("\n")[2:4] == ["Cell In[1], line 1", "----> 1 undefined"]


@pytest.mark.skipif(importlib.util.find_spec("IPython") is None, reason="IPython is not installed")
def test_the_recorded_texts_are_ipythons() -> None:
    from IPython.core.interactiveshell import InteractiveShell  # type: ignore[import-not-found]
    from traitlets.config import Config  # type: ignore[import-not-found]

    config = Config()
    config.HistoryManager.enabled = False
    for recorded in RECORDED:
        InteractiveShell.clear_instance()
        shell = InteractiveShell.instance(config=config, colors="NoColor")
        shown: list[str] = []
        shell._showtraceback = lambda kind, value, lines, shown=shown: shown.append("\n".join(lines))
        with contextlib.redirect_stdout(io.StringIO()):
            for cell in recorded["cells"]:
                shell.run_cell(cell, store_history=True)
        assert shown[-1].rstrip("\n").split("\n") == recorded["traceback"]
