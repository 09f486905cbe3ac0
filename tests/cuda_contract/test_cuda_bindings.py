"""The bindings of torch's CUDA build that torl calls on a GPU. Inspecting them needs the build, but no GPU."""

import ast
import inspect
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.multiprocessing.reductions
from torch import Tensor

from cli import ROOT
from torl.components.weights.transports.gloo import Nccl
from torl.components.weights.transports.shared_memory import _HANDLE
from torl.learner.model.attention import PackedPieces, varlen_attention
from torl.learner.rows import RowPieces

pytestmark = pytest.mark.skipif(
    torch.version.cuda is None,
    reason=f"torch {torch.__version__} is a build without CUDA: its CUDA bindings cannot be inspected",
)


def has_cuda_kernel(operator: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(operator, "CUDA")


@pytest.fixture
def allocator_settings() -> Iterator[None]:
    before = torch._C._accelerator_getAllocatorSettings()
    yield
    torch._C._accelerator_setAllocatorSettings(before)


def test_installed_torch_is_the_locked_version() -> None:
    lock = (ROOT / "requirements" / "gpu.txt").read_text(encoding="utf-8").splitlines()
    (pin,) = [line.split()[0] for line in lock if line.startswith("torch==")]
    assert pin == f"torch=={torch.__version__.split('+')[0]}"


def test_nccl_transport_matches_process_group() -> None:
    from torch.distributed import HashStore, ProcessGroupNCCL  # type: ignore[attr-defined]

    control: Any = SimpleNamespace(store=HashStore(), rank=0, size=1, timeout=timedelta(seconds=5))
    no_gpu = nullcontext() if torch.cuda.is_available() else pytest.raises(ValueError, match="no GPUs found")
    with no_gpu:  # wrong arguments are a TypeError, an unknown option an AttributeError
        Nccl(control, torch.device("cuda", 0)).close()
    assert (
        "(self: torch._C._distributed_c10d.Backend, tensor: torch.Tensor, root:" in ProcessGroupNCCL.broadcast.__doc__
    )
    assert "abort(self: torch._C._distributed_c10d.Backend) -> None" in ProcessGroupNCCL.abort.__doc__


def test_cuda_ipc_handle_has_the_values_of_torch_in_order() -> None:
    """torch's own pickling of CUDA tensors takes the values apart, by name."""
    tree = ast.parse(inspect.getsource(torch.multiprocessing.reductions))
    (names,) = [
        [target.id for target in node.targets[0].elts if isinstance(target, ast.Name)]
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and is_call(node.value, "_share_cuda_")
    ]
    (arguments,) = [
        [argument.id for argument in node.args if isinstance(argument, ast.Name)]
        for node in ast.walk(tree)
        if is_call(node, "_new_shared_cuda")
    ]
    assert [name.removeprefix("storage_") for name in arguments] == [name.removeprefix("storage_") for name in names]
    for ours, theirs in zip(_HANDLE, names, strict=True):
        assert set(ours.split("_")) <= set(theirs.split("_")), (ours, theirs)


@pytest.mark.parametrize("count", [len(_HANDLE) - 1, len(_HANDLE) + 1])
def test_cuda_ipc_handle_has_no_other_length(count: int) -> None:
    values: list[Any] = [0, b"h" * 64, 8, 0, b"c", 0, b"e", True, None]
    with pytest.raises(RuntimeError, match=f"tuple of {len(_HANDLE)} items expected"):
        torch.UntypedStorage._new_shared_cuda(*values[:count])


def test_gpu_identity_is_available() -> None:
    assert hasattr(torch._C._CudaDeviceProperties, "uuid")  # type: ignore[attr-defined]


def test_varlen_attention_matches_signature() -> None:
    signature = inspect.signature(torch.nn.attention.varlen.varlen_attn)
    bound: dict[str, Any] = {}

    def kernel(*arguments: Any, **settings: Any) -> Tensor:
        bound.update(signature.bind(*arguments, **settings).arguments)
        return torch.zeros(5, 2, 8)

    row = torch.zeros(1, 2, 5, 8)
    pieces = PackedPieces.from_row(RowPieces((2, 3), (None, 0)), torch.device("cpu"))
    keys = torch.zeros(1, 2, 7, 8)
    varlen_attention(row, keys, keys, None, pieces, kernel)
    assert bound["cu_seq_q"].tolist() == [0, 2, 5]
    assert bound["cu_seq_k"].tolist() == [0, 2, 7]
    assert (bound["max_q"], bound["max_k"]) == (3, 5)
    assert bound["query"].shape == (5, 2, 8)
    assert bound["key"].shape == bound["value"].shape == (7, 2, 8)


@pytest.mark.parametrize(
    "operator",
    [
        "aten::mm.dtype",  # the head's products in float32
        "aten::_flash_attention_forward",  # of varlen_attn
        "aten::_flash_attention_backward",
        "aten::_fused_adamw_",
    ],
)
def test_operator_has_a_cuda_kernel(operator: str) -> None:
    assert has_cuda_kernel(operator)


def test_adamw_can_be_fused() -> None:
    assert "fused" in inspect.signature(torch.optim.AdamW).parameters


@pytest.mark.usefixtures("allocator_settings")
def test_allocator_settings_are_replaced_as_a_whole() -> None:
    """The reason for which torl edits the present settings instead of setting one."""
    for settings in ("max_split_size_mb:512,expandable_segments:True", "expandable_segments:False"):
        torch._C._accelerator_setAllocatorSettings(settings)
        assert torch._C._accelerator_getAllocatorSettings() == settings


def is_call(node: ast.AST, method: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method
