"""Magics and shell commands in cells, translated as IPython 8.12.3 does."""

import importlib.util

import pytest

from torl_sandbox import magics
from torl_sandbox.magics import python_source

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
@pytest.mark.parametrize("order", ["code code commands", "commands code code", "code commands code"])
def test_long_cells_are_parsed_about_twice(line: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    parse = magics._line_of_syntax_error

    def counted(lines: list[str]) -> int | None:
        number = parse(lines)
        parsed.append(sum(map(len, lines if number is None else lines[:number])))
        return number

    monkeypatch.setattr(magics, "_line_of_syntax_error", counted)
    parts = {"code": f"{line}\n" * (7_500 // (len(line) + 1)), "commands": "!ls\n" * 100}
    cell = "".join(parts[name] for name in order.split())
    assert python_source(cell) == cell.replace("!ls", "get_ipython().system('ls')")
    assert sum(parsed) < 3 * len(cell)


def test_block_with_many_commands_is_parsed_a_few_times() -> None:
    """Its end is not Python then, as it would be without any translation."""
    cell = "if x:\n" + "    a\n" * 2000 + "    !ls\n" * 100
    assert 2 <= python_source(cell).count("get_ipython()") < 20


@pytest.mark.skipif(importlib.util.find_spec("IPython") is None, reason="IPython is not installed")
@pytest.mark.parametrize("cell", TRANSLATED)
def test_ipython_translates_alike(cell: str) -> None:
    transformer = importlib.import_module("IPython.core.inputtransformer2").TransformerManager()
    assert transformer.transform_cell(cell).rstrip("\n") == TRANSLATED[cell].rstrip("\n")
