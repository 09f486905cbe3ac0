"""The house rules: who may import whom, and what an import may load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "python" / "torl"

# A part may import the parts of its own layer's left side only (and itself).
LAYERS: list[set[str]] = [
    {"types", "config", "errors", "settings", "supervision", "weight_transfer"},
    {"_core"},
    {"sandbox", "reward", "data", "metrics", "algorithms"},
    {"rollout", "learner"},
    {"evaluate", "experience", "run_directory"},
    {"train", "verify"},
    {"demo"},
]
# Inside a layer only these may know each other.
WITHIN_LAYER = {
    ("settings", "errors"),
    ("supervision", "errors"),
    ("config", "types"),
    ("weight_transfer", "errors"),
    ("metrics", "reward"),
    ("algorithms", "metrics"),
    ("algorithms", "reward"),
}
# The libraries that only one place may import.
OWNERS = {"vllm": {"rollout"}, "deepspeed": {"learner"}}


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py").removesuffix(".pyi")


def imports_of(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names} if node.module == "torl" else {node.module}
    return names


def layer_of(part: str) -> int:
    return next(index for index, layer in enumerate(LAYERS) if part in layer)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_leftward(path: Path) -> None:
    part = part_of(path)
    if part == "__init__":
        return
    for name in imports_of(path):
        top, *rest = name.split(".")
        if top in OWNERS:
            assert part in OWNERS[top], f"{path} imports {top}, which only {OWNERS[top]} may"
        if top != "torl" or not rest or rest[0] in (part, "__version__"):
            continue
        other = rest[0]
        allowed = layer_of(other) < layer_of(part) or (part, other) in WITHIN_LAYER
        assert allowed, f"{path} imports torl.{other}"


def test_vllm_has_one_door() -> None:
    doors = {path.name for path in PACKAGE.rglob("*.py") if any(n.split(".")[0] == "vllm" for n in imports_of(path))}
    assert doors <= {"vllm_engine.py", "vllm_scheduler.py", "vllm_partial_blocks.py", "vllm_worker.py"}


HEAVY = {"torch", "vllm", "deepspeed", "transformers"}


@pytest.mark.parametrize("module", ["config", "settings", "types", "train", "evaluate", "verify"])
def test_light_imports_stay_light(module: str) -> None:
    program = f"import sys, torl, torl.{module}; print(sorted({HEAVY!r} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.strip() == "[]"
