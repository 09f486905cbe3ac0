"""The learner's head on a GPU: its Triton kernels agree with torch, in Triton's interpreter."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from torl.base.errors import LearnerError
from torl.learner.model import head
from torl.learner.model.head import LogprobHead

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


@needs_triton
def test_kernels_equal_torch() -> None:
    """Values and gradients in all precisions, with parts and blocks that do not divide the vocabulary."""
    program = Path(__file__).with_name("interpreted_head.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    distances: dict[str, float] = json.loads(ended.stdout)
    assert len(distances) == 15
    # Where a GPU rounds a gradient to bfloat16, the interpreter cuts it off.
    limits = {"float32": 1e-5, "bfloat16": 2**-7, "mixed": 1e-3}
    for case, distance in distances.items():
        assert distance < limits[case.partition(",")[0]], case


@needs_triton
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("size", [1024, 1])
def test_kernels_compile_for_a_gpu(size: int, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter accepts more than the compiler does. Gradients are rounded to the nearest bfloat16.

    Triton compiles a part of one token, the last one of an odd vocabulary, with its sizes as constants.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from torl.learner.model import head_kernels

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    integers = dict.fromkeys(("rows", "start", "size", "stride"), "i32")
    types = {"logits": f"*{dtype}", "target_K": "*i64", "temperature": "fp32", **integers}
    for kernel, flag in ((head_kernels._accumulate, "WITH_ENTROPY"), (head_kernels._differentiate, "TRAINS_ENTROPY")):
        constants = {flag: True, "BLOCK": size} | ({"size": 1, "stride": 1} if size == 1 else {})
        signature = {name: "constexpr" if name in constants else types.get(name, "*fp32") for name in kernel.arg_names}
        compiled = triton.compile(ASTSource(kernel, signature, constants), target=GPUTarget("cuda", 90, 32))
        assert compiled.asm["cubin"]
    assert ("cvt.rn.bf16" in compiled.asm["ptx"]) == (dtype == "bf16")


class _FakeGpu(FakeTensorMode):
    avoid_device_init = True  # nothing asks for a driver


def test_tensors_without_data_pass_through_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    with _FakeGpu():
        linear = nn.Linear(16, 57, device="cuda", dtype=torch.bfloat16)
        hidden = torch.empty(5, 16, device="cuda", dtype=torch.bfloat16)
        found = LogprobHead(linear, 20 * 5)(hidden, torch.zeros(5, device="cuda", dtype=torch.int64))
    assert [each.shape for each in found] == [(5,), (5,)]
    assert {each.device.type for each in found} == {"cuda"}


def test_a_gpu_without_triton_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torl.learner.model.head_kernels", raising=False)
    monkeypatch.delattr("torl.learner.model.head_kernels", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(LearnerError, match=r"training on a GPU requires Triton.*: pip install triton"):
        head._kernels()
