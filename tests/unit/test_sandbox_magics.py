"""Magics and shell commands in cells, translated as IPython 8.12.3 does."""

import importlib.util

import pytest

from torl.sandbox import magics
from torl.sandbox.magics import python_source

TRANSLATED = {
    "%matplotlib inline\nimport x": "get_ipython().run_line_magic('matplotlib', 'inline')\nimport x",
    "x = 1\nif x:\n    !ls -l": "x = 1\nif x:\n    get_ipython().system('ls -l')",
    "!pip install 'x": 'get_ipython().system("pip install \'x")',
    "?len": "get_ipython().run_line_magic('pinfo', 'len')",
    "x = 3\nif x:\n    x.real??\n??os.path": "x = 3\nif x:\n    get_ipython().run_line_magic('pinfo2', 'x.real')\n"
    "get_ipython().run_line_magic('pinfo2', 'os.path')",
    "a, b = !ls\nc = %pwd": "a, b = get_ipython().getoutput('ls')\nc = get_ipython().run_line_magic('pwd', '')",
    "await f()\n%time g()": "await f()\nget_ipython().run_line_magic('time', 'g()')",
    "%%time\nx = 1\nprint(x)": "get_ipython().run_cell_magic('time', '', 'x = 1\\nprint(x)\\n')\n",
    "%%writefile a.py\n!\n": "get_ipython().run_cell_magic('writefile', 'a.py', '!\\n')\n",
    "s = '''\n%x\n!y\n'''\n%pwd": "s = '''\n%x\n!y\n'''\nget_ipython().run_line_magic('pwd', '')",
}
UNCHANGED = [
    "x = (5\n  % 3)",
    "s = '''\n%x\n!y\n'''",
    "def f(:\n%pwd",
    "x !y",
    "x = y?",
    "'?'",
    "",
    "%pwd\n" + "x = 1\n" * 4000,
]


@pytest.mark.parametrize("cell", TRANSLATED)
def test_magics_become_calls_of_the_shell(cell: str) -> None:
    assert python_source(cell) == TRANSLATED[cell]


@pytest.mark.parametrize("cell", UNCHANGED)
def test_other_cells_stay_as_they_are(cell: str) -> None:
    assert python_source(cell) == cell


@pytest.mark.parametrize("line", ["a", "x = [1, 2, 3] + (4, 5) * 6"])
def test_long_cells_are_parsed_a_few_times(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = magics._line_of_syntax_error

    def counted(source: str) -> int | None:
        parsed.append(source)
        return parse(source)

    monkeypatch.setattr(magics, "_line_of_syntax_error", counted)
    ordinary = f"{line}\n" * (15_000 // (len(line) + 1))
    python_source(ordinary + "!ls\n" * 100)
    assert len(parsed) <= 6
    # Each line at the start takes a short parse.
    cell = "!ls\n" * 20 + ordinary
    assert python_source(cell) == cell.replace("!ls", "get_ipython().system('ls')")


@pytest.mark.skipif(importlib.util.find_spec("IPython") is None, reason="IPython is not installed")
@pytest.mark.parametrize("cell", TRANSLATED)
def test_ipython_translates_alike(cell: str) -> None:
    transformer = importlib.import_module("IPython.core.inputtransformer2").TransformerManager()
    assert transformer.transform_cell(cell).rstrip("\n") == TRANSLATED[cell].rstrip("\n")
