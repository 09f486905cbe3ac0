"""A Hugging Face model in a directory, read by rank 0 and handed out: no other rank reads it.

Under ZeRO-3 a rank keeps its shards alone, from the first module on: nowhere is the model whole.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

Reader = Callable[[str], Tensor]


def build_empty_model(
    settings: Any, dtype: torch.dtype, attention: str, deepspeed_settings: Mapping[str, Any] | None
) -> Any:
    """The model without its weights: in shards if `deepspeed_settings` are of ZeRO-3, else as memory not yet used."""
    from transformers import AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    with ExitStack() as contexts:
        contexts.enter_context(no_init_weights())
        if deepspeed_settings is not None:
            import deepspeed

            contexts.enter_context(deepspeed.zero.Init(config_dict_or_path=dict(deepspeed_settings)))
        model = AutoModelForCausalLM.from_config(settings, dtype=dtype, attn_implementation=attention)
    model.tie_weights()  # which is part of what is left out
    return model


def distribute_weights(model: nn.Module, open_reader: Callable[[set[str]], Any]) -> None:
    """Fill the model on all ranks with what rank 0 reads, one tensor at a time; every rank must call it.

    `open_reader` is called on rank 0 only, with the names that will be asked for; it gives a context of a `Reader`.
    """
    from deepspeed import zero

    saved = model.state_dict(keep_vars=True).keys()
    tensors: dict[str, Any] = dict(model.named_parameters())
    tensors |= {name: buffer for name, buffer in model.named_buffers() if name in saved}
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


@contextmanager
def open_weights(directory: Path, wanted: set[str], load_whole: Callable[[], nn.Module]) -> Iterator[Reader]:
    """Read tensors out of a model directory by their names; raises OSError or ValueError where one cannot be read.

    Where the files are no safetensors, or name their tensors in another way than the model does, transformers reads the
    model as a whole, which takes that much memory of the host on rank 0.
    """
    from safetensors import safe_open

    places = _places(directory)
    if not wanted <= places.keys():
        print(f"{directory} does not name its tensors as the model does: rank 0 loads it whole", flush=True)
        state = load_whole().state_dict()
        yield lambda name: state[name]
        return
    with ExitStack() as files:
        opened: dict[str, Any] = {}

        def read(name: str) -> Tensor:
            file = places[name]
            if file not in opened:
                opened[file] = files.enter_context(safe_open(directory / file, framework="pt"))
            tensor: Tensor = opened[file].get_tensor(name)
            return tensor

        yield read


def _places(directory: Path) -> dict[str, str]:
    """Which safetensors file of a model directory has which tensor."""
    from safetensors import safe_open

    index = directory / "model.safetensors.index.json"
    if index.is_file():
        places: dict[str, str] = json.loads(index.read_bytes())["weight_map"]
        return places
    single = directory / "model.safetensors"
    if not single.is_file():
        return {}
    with safe_open(single, framework="pt") as file:
        return dict.fromkeys(file.keys(), single.name)
