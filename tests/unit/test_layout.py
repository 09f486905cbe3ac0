"""The layers of the package: allowed imports between packages, and modules that an import may load."""

import ast
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import torl
from torl.algorithms.masks import MASKS
from torl.formats import FORMATS
from torl.options import load_object
from torl.rewards import REWARDS
from torl.text.templates import TEMPLATES

PACKAGE = Path(__file__).parents[2] / "python" / "torl"

# A package may import packages of lower layers, and none of its own layer or above.
FLOORS: list[set[str]] = [
    {"_core"},
    {"errors", "types", "seeds", "version"},
    {"expansion", "guard", "inputs", "paths", "trust"},
    {"columnar"},
    {"options"},
    {"runtime"},
    {"algorithms", "component", "hub", "text", "weights"},
    {"agents", "data", "engine", "formats", "rewards", "tools", "trackers"},
    {"environments"},
    {"config"},
    {"placement"},
    {"learner", "records"},
    {"report"},
    {"rollout"},
    {"training"},
    {"apps"},
    {"interop"},
    {"api", "commands", "plan"},
    {"__main__"},
    {"train", "finetune", "sample", "evaluate", "verify"},
    {"recipes"},
]
# The libraries that only one place may import.
OWNERS = {
    "vllm": {"engine/vllm"},
    "deepspeed": {"learner"},
    "math_verify": {"rewards"},
    "plotly": {"report"},
    "aiohttp": {"runtime/http.py", "rollout/agents", "rewards/judge.py", "apps/grader", "tools"},
    "bm25s": {"tools/search_index.py"},
    "mcp": {"tools/mcp.py", "tools/mcp_connection.py"},
    **{name: set() for name in ("fastapi", "prometheus_client", "uvicorn", "uvloop")},  # of the sandbox's servers
    "starlette": {"apps/view"},
    "openenv": {"interop/openenv.py"},
    "verifiers": {"interop/verifiers.py"},
    "ray": {"runtime/cluster"},
}
# The giants are loaded by the functions that need them, never by an import of torl.
GIANTS = {"torch", "vllm", "deepspeed", "transformers", "ray"}
FILES = sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    if path.name == "__main__.py":
        return "__main__"  # a program may import every package, regardless of its place
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(tree: ast.AST) -> set[str]:
    """Dotted names; `from torl import x` counts as `torl.x`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            module = node.module or ""
            names |= {f"torl.{alias.name}" for alias in node.names} if module == "torl" else {module}
    return names


def floor_of(room: str) -> int:
    return next(index for index, floor in enumerate(FLOORS) if room in floor)


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_import_points_down(path: Path) -> None:
    room = room_of(path)
    if room in ("__init__", "demo", "recipes"):
        return
    for name in imports_of(ast.parse(path.read_text(encoding="utf-8"))):
        assert name != "torl", f"{name_of(path)} imports the face, which knows every room"
        top, *rest = name.split(".")
        if top == "torl" and rest and rest[0] != room:
            assert floor_of(rest[0]) < floor_of(room), f"{name_of(path)} imports torl.{rest[0]}"


@pytest.mark.parametrize("path", [path for path in FILES if room_of(path) == "recipes"], ids=name_of)
def test_recipe_imports_only_public_names(path: Path) -> None:
    """A recipe is written as a user writes it: with the names of `torl`, and of none of its modules."""
    for name in imports_of(ast.parse(path.read_text(encoding="utf-8"))):
        top, *rest = name.split(".")
        assert top != "torl" or (len(rest) <= 1 and set(rest) <= set(torl.__all__)), name


@pytest.mark.parametrize(
    "registry", [FORMATS, REWARDS, TEMPLATES, MASKS], ids=["formats", "rewards", "templates", "masks"]
)
def test_registered_recipes_can_be_loaded(registry: Mapping[str, Any]) -> None:
    locations = [target for target in registry.values() if isinstance(target, str)]
    assert locations
    assert all(callable(load_object(location)) for location in locations)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_owned_library_is_imported_by_its_owner_only(path: Path) -> None:
    place = name_of(path)
    for name in imports_of(ast.parse(path.read_text(encoding="utf-8"))):
        owners = OWNERS.get(name.split(".")[0])
        assert owners is None or any(place == owner or place.startswith(f"{owner}/") for owner in owners), name


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_torls_own_imports_stand_at_the_top(path: Path) -> None:
    if path == PACKAGE / "__init__.py":
        return  # torl/__init__.py loads a package on first use
    tree = ast.parse(path.read_text(encoding="utf-8"))
    deep = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) and node not in tree.body]
    inside = {name for node in deep for name in imports_of(node) if name.split(".")[0] == "torl"}
    assert not inside


def test_every_package_has_a_layer() -> None:
    rooms = {room_of(path) for path in FILES} - {"__init__", "demo"}
    assert rooms == set().union(*FLOORS) - {"_core"}


@pytest.mark.parametrize("module", ["config", "commands.launch", "api", "plan", "learner.learner"])
def test_light_imports_stay_light(module: str) -> None:
    program = f"import sys, torl, torl.{module}; print(sorted({GIANTS!r} & set(sys.modules)))"
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert completed.stdout.strip() == "[]"


@pytest.mark.parametrize("module", ["torl_sandbox.__main__", "torl.tools"])
def test_server_libraries_are_loaded_when_a_server_starts(module: str) -> None:
    libraries = {"aiohttp", "mcp", "uvicorn", "uvloop", "prometheus_client"}
    program = f"import sys, {module}; print(sorted({libraries!r} & set(sys.modules)))"
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert completed.stdout.strip() == "[]"


def test_no_two_test_files_share_a_name() -> None:
    """pytest imports them by their names alone, and its whole run ends in an error where two are the same."""
    names = [path.name for path in (PACKAGE.parents[1] / "tests").rglob("test_*.py")]
    assert [name for name in names if names.count(name) > 1] == []
