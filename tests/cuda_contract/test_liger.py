"""Liger's kernels in the models that torl trains: they compile for a GPU of the locked Triton, without a GPU."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from cli import ROOT
from torl.components.hub.shape import ModelShape

pytestmark = pytest.mark.skipif(
    find_spec("liger_kernel") is None or find_spec("triton") is None,
    reason="liger-kernel or Triton is not installed: its kernels cannot be compiled",
)


def test_installed_version_is_the_locked_one() -> None:
    lock = (ROOT / "requirements" / "gpu.txt").read_text(encoding="utf-8").splitlines()
    assert [line.split()[0] for line in lock if line.startswith("liger-kernel==")] == [
        f"liger-kernel=={version('liger-kernel')}"
    ]


@pytest.mark.parametrize(
    "families", [("qwen2",), pytest.param(("qwen3", "llama", "mistral"), marks=pytest.mark.slow)], ids="-".join
)
def test_kernels_compile_for_every_supported_family(families: tuple[str, ...], tmp_path: Path) -> None:
    program = Path(__file__).with_name("compiled_liger.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, program, *families]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    compiled = json.loads(ended.stdout.splitlines()[-1])
    assert [*compiled] == [*families]
    for family in compiled.values():
        kernels = family["kernels"]
        assert len(kernels) == 5  # norm and gated layer in both directions; rotary positions are their own inverse
        assert all(any(part in name for name in kernels) for part in ("rms_norm", "swiglu", "rope"))
        assert min(kernels.values()) > 1000
        predicted = ModelShape.from_config(family["config"]).activation_bytes(2, fused=True)
        assert family["saved"] == pytest.approx(predicted, rel=0.05)
