"""The sandbox's package is below torl: it imports nothing of it, and itself only downwards."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "python" / "torl_sandbox"
FILES = sorted(PACKAGE.rglob("*.py"))
# A module may import modules of lower layers, and a server its neighbors.
FLOORS: list[set[str]] = [
    {"__version__", "_core", "errors", "output", "paths"},
    {"execution", "guest", "options"},
    {"session"},
    {"notebook", "pool"},
    {"servers"},
    {"__main__"},
]
# The library of the command line. The servers' libraries come with extras.
LIBRARIES = {"__main__": {"rich"}}
TORL = re.compile(r"\btorl(\.\w+)+")


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports_of(tree: ast.AST) -> Iterator[str]:
    """Yield dotted names; `from torl_sandbox import x` counts as `torl_sandbox.x`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def named_in_text(tree: ast.AST) -> list[str]:
    """The modules of torl that a text names, by which `import_module`, a subprocess or a template could import one."""
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return [found[0] for text in texts for found in TORL.finditer(text)]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nothing_of_torl_is_imported_nor_named_in_a_text(path: Path) -> None:
    tree = tree_of(path)
    assert [name for name in imports_of(tree) if name.partition(".")[0] == "torl"] == []
    assert named_in_text(tree) == []


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("import_module('torl.base.errors')", ["torl.base.errors"]),
        ('COMMAND = "python -m torl.components.grading.worker"', ["torl.components.grading.worker"]),
        ('f"from torl.base.types.turns import {name}"', ["torl.base.types.turns"]),
        ("pool = 'torl_sandbox.pool'", []),
        ("\"pip install 'torl[serve]'\"", []),
    ],
)
def test_an_import_by_text_is_seen(line: str, named: list[str]) -> None:
    assert named_in_text(ast.parse(line)) == named


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_import_points_down(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        return  # imports a module at the first use of a name
    lower: set[str] = set()
    for floor in FLOORS:
        if room in floor:
            break
        lower |= floor
    for name in imports_of(tree_of(path)):
        top, *rest = name.split(".")
        if top == "torl_sandbox" and rest[0] != room:
            assert rest[0] in lower, f"{name_of(path)} imports {name}"


@pytest.mark.parametrize("path", [path for path in FILES if room_of(path) != "__init__"], ids=name_of)
def test_its_own_imports_stand_at_the_top(path: Path) -> None:
    tree = tree_of(path)
    deep = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) and node not in tree.body]
    assert [name for node in deep for name in imports_of(node) if name.startswith("torl_sandbox")] == []


@pytest.mark.parametrize("path", [path for path in FILES if room_of(path) != "servers"], ids=name_of)
def test_only_servers_need_libraries(path: Path) -> None:
    tops = {name.partition(".")[0] for name in imports_of(tree_of(path))}
    assert tops - sys.stdlib_module_names - {"torl_sandbox"} <= LIBRARIES.get(room_of(path), set())


def test_every_module_has_a_layer() -> None:
    assert {room_of(path) for path in FILES} - {"__init__"} == set().union(*FLOORS) - {"__version__", "_core"}


def test_the_sandbox_runs_where_nothing_of_torl_can_be_imported() -> None:
    program = (
        "import sys\n"
        "sys.modules['torl'] = None\n"  # an import of it raises an error
        "from torl_sandbox import SandboxPool\n"
        "from torl_sandbox.__main__ import main\n"
        "with SandboxPool(1) as pool:\n"
        "    session = pool.session()\n"
        "    session.run('x = 6')\n"
        "    print(pool.run('print(1)').stdout, session.run('print(x * 7)').stdout)\n"
        "    print(sorted({'numpy', 'pydantic', 'uvicorn', 'mcp', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240)
    assert (done.stdout, done.stderr) == ("1\n 42\n\n[]\n", "")


def test_a_light_name_loads_no_extension() -> None:
    program = "import sys, torl_sandbox.errors, torl_sandbox.errors; print('torl_sandbox._core' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n"
