"""The layers of torl and its laboratory: allowed imports between packages, and modules that an import may load."""

import ast
import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import torl
from torl.base.options import load_object
from torl.base.types import Block, Grade, Outcome, Problem, Prompt, ScoredGroup, ScoredTrajectory, ToolCall, Trajectory
from torl.components.algorithms.masks import MASKS
from torl.components.formats import FORMATS
from torl.components.rewards import REWARDS
from torl.components.text.templates import TEMPLATES

SOURCES = Path(__file__).parents[2] / "python"
FILES = {name: sorted((SOURCES / name).rglob("*.py")) for name in ("torl", "torl_lab")}
EACH = [path for paths in FILES.values() for path in paths]

# A package may import packages of lower layers, and none of its own layer or above.
LAYERS = [
    {"_core", "base/removed_settings"},
    {"base/errors", "base/types", "base/removed", "base/seeds", "base/version"},
    {"base/guard", "base/inputs", "base/trust"},
    {"base/columnar", "base/paths", "base/plugins"},
    {"base/options"},
    {"base/runtime"},
    {"base/component"},
    {
        "components/algorithms",
        "components/grading",
        "components/hub",
        "components/programs",
        "components/text",
        "components/weights",
    },
    {f"components/{name}" for name in ("agents", "data", "engine", "formats", "rewards", "tools", "trackers")},
    {"components/environments"},
    {"components/interop"},
    {"run/config"},
    {"run/placement", "run/records"},
    {"run/display"},
    {"learner", "rollout"},
    {"training"},
    {"api", "commands"},
    {"__main__"},
    {"train"},
]
LAB_LAYERS = [
    {"curation", "exchange", "replay"},
    {"audit", "doctor"},
    {"view"},
    {"report"},
    {"evaluation"},
    {"sweep"},
    {"commands"},
]
# Modules that the audit's formulas share with a run: types of records, settings, names, seeds and parsers of text.
DEFINITIONS = {
    *("torl.base.options", "torl.base.seeds", "torl.base.types", "torl.run.config", "torl.run.config.schedule"),
    *("torl.run.records.metric_names", "torl.run.records.rows", "torl.components.algorithms.requirements"),
    *("torl.components.formats.results", "torl.components.text.answers"),
}
# Modules that the rest of the audit shares: readers of a run's inputs and records, its text and its graders, and the
# report of a command's errors. No module that computes metrics, selection, order, masks, mini-batches, samples or
# advantages.
READERS = {
    *("torl._core", "torl.base.component", "torl.base.errors", "torl.base.inputs", "torl.base.trust"),
    *("torl.components.hub", "torl.components.rewards", "torl.components.tools", "torl.components.formats"),
    *("torl.components.text.prompts", "torl.components.text.sources", "torl.components.text.tokenizer"),
    *("torl.components.text.vocabulary", "torl.learner.checkpoint.directory", "torl.learner.checkpoint.shards"),
    *("torl.rollout.calls", "torl.rollout.model_directory", "torl.rollout.observation", "torl.rollout.grading"),
    *(f"torl.run.records.{name}" for name in ("content", "files", "reading", "receipt", "row_types", "run_directory")),
    *("torl.run.records.tokens", "torl.run.config.training", "torl.run.display.console", "torl.training.examples"),
    *("torl.commands.command", "torl.training.health", "torl.training.policy_versions"),
    *(f"torl.components.grading.{name}" for name in ("grader", "verdict")),
    *(f"torl.components.formats.{name}" for name in ("format", "chat.calls")),
}
# Modules whose components are called a second time: those without a formula, and the run's sampler for its position.
CALLED_AGAIN = {
    "torl_lab/audit/again.py": {"torl.components.algorithms.advantages", "torl.components.algorithms.losses"},
    "torl_lab/audit/problem_sets.py": {"torl.components.data"},
}
# The libraries that only one place may import.
OWNERS = {
    "vllm": {"torl/components/engine/vllm"},
    "deepspeed": {"torl/learner"},
    "math_verify": {"torl/components/grading"},
    "aiohttp": {
        "torl/base/runtime/http.py",
        "torl/components/rewards/judge.py",
        "torl/components/tools",
    },
    "bm25s": {"torl/components/tools/search_index.py"},
    "mcp": {"torl/components/tools/mcp.py", "torl/components/tools/mcp_connection.py"},
    # Of the sandbox's servers.
    **{name: set() for name in ("fastapi", "httptools", "prometheus_client", "uvicorn", "uvloop")},
    "starlette": {"torl/rollout/agents", "torl/commands/grader_server.py", "torl_lab/view"},
    "openenv": {"torl/components/interop/openenv.py"},
    "verifiers": {"torl/components/interop/verifiers.py"},
    "ray": {"torl/base/runtime/cluster"},
}
# The giants are loaded by the functions that need them, never by an import of torl.
GIANTS = {"torch", "vllm", "deepspeed", "transformers", "ray"}
GROUPED = {"base", "components", "run"}
NAMED = re.compile(r"\btorl_lab(?:\.\w+)+")


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCES))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def package_of(module: str) -> str:
    """Return the package of a module: "learner", or two names where the first only groups packages, "run/config"."""
    _, first, *rest = module.split(".")
    return f"{first}/{rest[0]}" if first in GROUPED and rest else first


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")


def imports_of(tree: ast.AST) -> Iterator[str]:
    """Yield dotted names; `from torl.base import x` counts as `torl.base.x`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            module = node.module or ""
            parts = module.split(".")
            whole = module in ("torl", "torl_lab") or (len(parts) == 2 and parts[1] in GROUPED)
            yield from (f"{module}.{alias.name}" for alias in node.names) if whole else (module,)


def modules_of(tree: ast.AST) -> set[str]:
    """The modules that are imported, or whose names are: of the metric names, the module itself."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            found |= {f"{module}.{each.name}" for each in node.names} if module == "torl.run.records" else {module}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found


def named_in_text(tree: ast.AST) -> list[str]:
    """The modules of the laboratory that a text names, by which one could be imported."""
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return [found[0] for text in texts for found in NAMED.finditer(text)]


def layer_of(package: str, layers: list[set[str]]) -> int:
    return next(index for index, layer in enumerate(layers) if package in layer)


@pytest.mark.parametrize("path", FILES["torl"], ids=name_of)
def test_torl_knows_nothing_of_the_laboratory(path: Path) -> None:
    """Neither by an import nor by a text: what the laboratory adds, it adds by entry points."""
    tree = tree_of(path)
    assert [name for name in imports_of(tree) if name.partition(".")[0] == "torl_lab"] == []
    if path != SOURCES / "torl" / "__init__.py":  # its message names the new place of a function
        assert named_in_text(tree) == []


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("import_module('torl_lab.doctor')", ["torl_lab.doctor"]),
        ('WORK = "torl_lab.doctor.health:train"', ["torl_lab.doctor.health"]),
        ("'as torl_lab does'", []),
    ],
)
def test_an_import_by_text_is_seen(line: str, named: list[str]) -> None:
    assert named_in_text(ast.parse(line)) == named


@pytest.mark.parametrize("path", FILES["torl"], ids=name_of)
def test_every_import_points_down(path: Path) -> None:
    package = package_of(module_of(path)) if module_of(path) != "torl" else "__init__"
    if package in ("__init__", "demo", "recipes", *GROUPED):
        return
    for name in imports_of(tree_of(path)):
        assert name != "torl", f"{name_of(path)} imports the face, which knows every package"
        if name.partition(".")[0] == "torl" and package_of(name) != package:
            assert layer_of(package_of(name), LAYERS) < layer_of(package, LAYERS), f"{name_of(path)} imports {name}"


@pytest.mark.parametrize("path", FILES["torl_lab"], ids=name_of)
def test_every_import_of_the_laboratory_points_down(path: Path) -> None:
    module = module_of(path)
    if module == "torl_lab":
        return
    package = package_of(module)
    for name in imports_of(tree_of(path)):
        assert name != "torl_lab", f"{name_of(path)} imports the face, which knows every package"
        if name.partition(".")[0] == "torl_lab" and package_of(name) != package:
            assert layer_of(package_of(name), LAB_LAYERS) < layer_of(package, LAB_LAYERS), (
                f"{name_of(path)} imports {name}"
            )


AUDIT = [path for path in FILES["torl_lab"] if "audit" in path.relative_to(SOURCES).parts]


@pytest.mark.parametrize("path", AUDIT, ids=name_of)
def test_the_audit_shares_only_definitions_with_a_run(path: Path) -> None:
    """Its formulas are its own: they import nothing that computes what they check."""
    allowed = DEFINITIONS if path.parent.name == "naive" else DEFINITIONS | READERS
    imported = {name for name in modules_of(tree_of(path)) if name.startswith("torl.")}
    assert imported - allowed - CALLED_AGAIN.get(name_of(path), set()) == set()


@pytest.mark.parametrize("path", [path for path in AUDIT if path.parent.name == "naive"], ids=name_of)
def test_formulas_of_the_audit_use_the_fields_of_records_alone(path: Path) -> None:
    """Neither properties nor methods of their types, which a run computes with, too."""
    kinds = (Trajectory, ToolCall, Outcome, Grade, ScoredTrajectory, ScoredGroup, Prompt)
    fields = {field.name for kind in (*kinds, Block, Problem) for field in dataclasses.fields(kind)}
    computed = {name for kind in kinds for name in vars(kind) if not name.startswith("_")} - fields
    assert {"has_zero_variance", "credited", "calls_in", "sampled_text", "for_episode"} <= computed
    used = {node.attr for node in ast.walk(tree_of(path)) if isinstance(node, ast.Attribute)}
    assert used & computed == set()


@pytest.mark.parametrize("path", [path for path in FILES["torl"] if "recipes" in path.parts], ids=name_of)
def test_recipe_imports_only_public_names(path: Path) -> None:
    """A recipe is written as a user writes it: with the names of `torl`, and of none of its modules."""
    for name in imports_of(tree_of(path)):
        top, *rest = name.split(".")
        assert top != "torl" or (len(rest) <= 1 and set(rest) <= set(torl.__all__)), name


@pytest.mark.parametrize(
    "registry", [FORMATS, REWARDS, TEMPLATES, MASKS], ids=["formats", "rewards", "templates", "masks"]
)
def test_registered_recipes_can_be_loaded(registry: Mapping[str, Any]) -> None:
    locations = [target for target in registry.values() if isinstance(target, str)]
    assert locations
    assert all(callable(load_object(location)) for location in locations)


@pytest.mark.parametrize("path", EACH, ids=name_of)
def test_owned_library_is_imported_by_its_owner_only(path: Path) -> None:
    place = name_of(path)
    for name in imports_of(tree_of(path)):
        owners = OWNERS.get(name.split(".")[0])
        assert owners is None or any(place == owner or place.startswith(f"{owner}/") for owner in owners), name


@pytest.mark.parametrize("path", EACH, ids=name_of)
def test_torls_own_imports_stand_at_the_top(path: Path) -> None:
    if path.parent in (SOURCES / "torl", SOURCES / "torl_lab") and path.name == "__init__.py":
        return  # the faces load a package on first use
    tree = tree_of(path)
    deep = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) and node not in tree.body]
    assert not {name for node in deep for name in imports_of(node) if name.split(".")[0] in FILES}


@pytest.mark.parametrize(("package", "layers"), [("torl", LAYERS), ("torl_lab", LAB_LAYERS)], ids=["torl", "torl_lab"])
def test_every_package_has_a_layer(package: str, layers: list[set[str]]) -> None:
    modules = {module_of(path) for path in FILES[package]} - {package}
    packages = {package_of(module) for module in modules} - {"demo", "recipes", *GROUPED}
    assert packages == set().union(*layers) - {"_core"}


@pytest.mark.parametrize("module", ["run.config", "commands.launch", "api", "commands.plan", "learner.learner"])
def test_light_imports_stay_light(module: str) -> None:
    program = f"import sys, torl, torl.{module}; print(sorted({GIANTS!r} & set(sys.modules)))"
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert completed.stdout.strip() == "[]"


@pytest.mark.parametrize("module", ["torl_sandbox.__main__", "torl.components.tools"])
def test_server_libraries_are_loaded_when_a_server_starts(module: str) -> None:
    libraries = {"aiohttp", "mcp", "prometheus_client", "starlette", "uvicorn", "uvloop"}
    program = f"import sys, {module}; print(sorted({libraries!r} & set(sys.modules)))"
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert completed.stdout.strip() == "[]"
