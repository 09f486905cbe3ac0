"""Load a Hugging Face model: rank 0 reads it and distributes the weights, and faster kernels replace some layers.

Under ZeRO-3 each rank keeps only its shards from the first module on, so that no rank has the complete model.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torl.base.errors import DataError
from torl.base.inputs import parse_json, read_file
from torl.run.config import ModelConfig

Reader = Callable[[str], Tensor]
"""A function that returns the tensor with a name."""

_MAX_SHOWN = 3  # missing tensors in an error


def build_empty_model(
    settings: Any,
    dtype: torch.dtype,
    attention: str,
    deepspeed_settings: Mapping[str, Any] | None,
    device: torch.device,
) -> Any:
    """Create a model with uninitialized weights.

    Args:
        settings: Config of the model.
        dtype: Precision of the weights.
        attention: Attention implementation.
        deepspeed_settings: DeepSpeed's configuration, which shards the weights (ZeRO-3). None does not shard them.
        device: Device of this rank. Its process group may have no backend for any other device.
    """
    from accelerate import init_empty_weights
    from transformers import AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    build = partial(AutoModelForCausalLM.from_config, settings, dtype=dtype, attn_implementation=attention)
    with no_init_weights():
        if deepspeed_settings is None:
            with device:
                model = build()
        else:
            import deepspeed

            with deepspeed.zero.Init(config_dict_or_path=dict(deepspeed_settings)):
                model = build()
            with init_empty_weights(include_buffers=False):
                _copy_constants(build(), model, device)
    model.tie_weights()  # a part of the initialization that was skipped
    for name, buffer in saved_buffers(model).items():
        if any(kept in name for kept in model._keep_in_fp32_modules_strict):
            buffer.data = buffer.data.float()  # as `from_pretrained` loads it
    return model


def _copy_constants(source: nn.Module, target: nn.Module, device: torch.device) -> None:
    """Copy buffers and other tensors that are not parameters to the same model on a device.

    DeepSpeed rounds every tensor that is created while it shards a model, such as the frequencies of rotary positions,
    which turn a rounding error into a wrong angle at large positions.
    """
    for there, here in zip(source.modules(), target.modules(), strict=True):
        for tensors, copies in ((there._buffers, here._buffers), (vars(there), vars(here))):
            copies |= {name: value.to(device) for name, value in tensors.items() if isinstance(value, Tensor)}


def distribute_weights(model: nn.Module, open_reader: Callable[[set[str]], Any]) -> None:
    """Distribute the weights that rank 0 reads to all ranks, one tensor at a time. Every rank must call this.

    Args:
        model: Model to fill.
        open_reader: Function that returns a context manager of a `Reader` for the given names. Called on rank 0 only.
    """
    from deepspeed import zero

    tensors: dict[str, Any] = dict(model.named_parameters()) | saved_buffers(model)
    rank = torch.distributed.get_rank()
    with ExitStack() as contexts, torch.no_grad():
        read: Reader | None = contexts.enter_context(open_reader(set(tensors))) if rank == 0 else None
        for name, tensor in tensors.items():
            sharded = hasattr(tensor, "ds_id")
            with zero.GatheredParameters([tensor], modifier_rank=0, enabled=sharded):
                if read is not None:
                    tensor.data.copy_(read(name))
            if not sharded:
                torch.distributed.broadcast(tensor.data, 0)


def saved_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Return the buffers of a model that its files contain, by name."""
    saved = model.state_dict(keep_vars=True).keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in saved}


@contextmanager
def open_weights(
    directory: Path,
    names: set[str],
    load_whole: Callable[[], tuple[nn.Module, Mapping[str, Any]]],
    optional: frozenset[str] = frozenset(),
) -> Iterator[Reader]:
    """Yield a reader of the tensors in a model directory.

    If the directory has no safetensors files, or their names differ from the model's, transformers loads the complete
    model, which takes its size in CPU memory on rank 0.

    Args:
        directory: Directory of the model.
        names: Names of the tensors that will be read.
        load_whole: Function that loads the complete model, with transformers' `output_loading_info`.
        optional: Names of tensors that the directory may lack. They have random values then.

    Raises:
        DataError: The directory lacks a tensor of the model. transformers would initialize it with random values.
        OSError, ValueError: A tensor cannot be read.
    """
    from safetensors import safe_open

    files_by_name = _files_by_name(directory)
    if not names <= files_by_name.keys():
        print(f"{directory} names its tensors differently from the model: rank 0 loads it completely", flush=True)
        whole, found = load_whole()
        if missing := sorted(set(found["missing_keys"]) - optional):
            shown = ", ".join(missing[:_MAX_SHOWN]) + (", ..." if len(missing) > _MAX_SHOWN else "")
            raise DataError(f"model.path = {directory}: its files lack {len(missing)} tensors of the model: {shown}")
        state = whole.state_dict()
        yield lambda name: state[name]
        return
    with ExitStack() as files:
        opened: dict[str, Any] = {}

        def read(name: str) -> Tensor:
            file = files_by_name[name]
            if file not in opened:
                opened[file] = files.enter_context(safe_open(directory / file, framework="pt"))
            tensor: Tensor = opened[file].get_tensor(name)
            return tensor

        yield read


def _files_by_name(directory: Path) -> dict[str, str]:
    """Return the safetensors file of each tensor in a model directory."""
    from safetensors import safe_open

    index = directory / "model.safetensors.index.json"
    if index.is_file():
        weight_map: dict[str, str] = parse_json(read_file(index))["weight_map"]
        return weight_map
    single = directory / "model.safetensors"
    if not single.is_file():
        return {}
    with safe_open(single, framework="pt") as file:
        return dict.fromkeys(file.keys(), single.name)


def use_kernels(causal_lm: Any, model: ModelConfig) -> str:
    """Apply `model.kernels` to a Hugging Face model, and return a description of its kernels for the log.

    Liger's kernels replace norms, rotary embeddings and gated layers. Liger is an optional package.

    Raises:
        DataError: `model.kernels` is "liger", but Liger is not installed, has no kernels for the model, or there is no
            GPU.
    """
    if model.kernels == "torch":
        return "torch's kernels, as configured"
    missing = _missing_requirement(causal_lm.config.model_type)
    if missing is None:
        from liger_kernel.transformers.monkey_patch import _apply_liger_kernel_to_instance

        # torl implements heads and losses.
        _apply_liger_kernel_to_instance(causal_lm, fused_linear_cross_entropy=False, cross_entropy=False)
        return "Liger's kernels for norms, rotary positions and gated layers"
    if model.kernels == "liger":
        raise DataError(f"model.kernels = 'liger': {missing}; \"auto\" uses torch's kernels if Liger's are unavailable")
    return f"torch's kernels: {missing}"


def _missing_requirement(model_type: str) -> str | None:
    if not torch.cuda.is_available():
        return "Liger's kernels need a CUDA GPU"
    if find_spec("liger_kernel") is None:
        return "liger-kernel is not installed"
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    return None if model_type in MODEL_TYPE_TO_APPLY_LIGER_FN else f"Liger has no kernels for {model_type}"
