"""LoRA (arXiv 2106.09685) with peft: adapters are trained, and the weights of the base model are frozen.

Weights that leave the learner have the names and shapes of the base model, with adapters merged. The model with
disabled adapters is the reference model, so that no second model is needed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torl.base.errors import DataError
from torl.run.config import LoraConfig

if TYPE_CHECKING:
    from peft.tuners.lora import LoraLayer


from torch.autograd.function import once_differentiable


def compact_frozen_weights(module: nn.Module) -> None:
    """Store the frozen float32 weights below adapters in bfloat16 if their values stay the same.

    Call it on weights that are not sharded, and after DeepSpeed's engine has checked their precision. The numbers that
    the model computes do not change.
    """
    for layer in adapted_layers(module):
        base = layer.base_layer
        if type(base) is nn.Linear and base.weight.dtype == torch.float32:
            compact = base.weight.detach().to(torch.bfloat16)
            if torch.equal(compact.float(), base.weight):
                base.weight.data = compact  # of the same parameter, which DeepSpeed's engine refers to
                layer.base_layer = CompactLinear(base)


class CompactLinear(nn.Module):
    """A frozen linear layer with weights in a lower precision than its input and its output."""

    def __init__(self, linear: nn.Linear) -> None:
        """Take the parameters of a layer, whose bias has the precision of the input."""
        super().__init__()
        self.weight = linear.weight
        self.bias = linear.bias

    def forward(self, hidden: Tensor) -> Tensor:
        """Apply the layer."""
        product: Tensor = _Product.apply(hidden, self.weight)  # type: ignore[no-untyped-call]
        return product if self.bias is None else product + self.bias


class _Product(torch.autograd.Function):
    """hidden @ weight.T, which keeps the weight, and not its conversion, for the backward pass."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return nn.functional.linear(hidden, weight.to(hidden.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (weight,) = ctx.saved_tensors
        return gradient @ weight.to(gradient.dtype), None


_ADAPTER = "default"  # peft's name for the only one
_HOLDER = "causal_lm"
_PEFT_PREFIX = "base_model.model."  # peft's prefix of all names in its files


def add_adapters(causal_lm: Any, config: LoraConfig | None, seed: int) -> Any:
    """Add adapters to linear layers of a Hugging Face model, and freeze its weights.

    The initial adapters do not change its output.

    Args:
        causal_lm: Model, which is returned.
        config: Settings of the adapters. None adds no adapters.
        seed: Random seed of the initial adapters, which must be equal on all ranks.

    Raises:
        DataError: A name matches no linear layer below the head, the layers store transposed weights, or peft is not
            installed.
    """
    if config is None:
        return causal_lm
    try:
        from peft import inject_adapter_in_model
    except ImportError as error:
        raise DataError(f"model.lora needs peft, which cannot be imported: {error}") from error
    targets = [f"{_HOLDER}.{name}" for name in _target_layers(causal_lm, config)]
    # peft targets the fused experts of a model that it knows instead of the given layers. It knows models by their
    # config, which the holder lacks.
    holder = nn.ModuleDict({_HOLDER: causal_lm})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(_peft_settings(config, targets), holder, adapter_name=_ADAPTER)
    if unexpected := {name for name, _ in _layers(holder)}.symmetric_difference(targets):
        raise DataError(f"model.lora: peft adapted other layers than were requested; the first is {min(unexpected)}")
    return causal_lm


def _target_layers(causal_lm: Any, config: LoraConfig) -> list[str]:
    """Return the names of the linear layers to adapt. Fused experts and embeddings are other modules."""
    from transformers.pytorch_utils import Conv1D

    head = causal_lm.get_output_embeddings()
    layers = {name: layer for name, layer in causal_lm.named_modules() if layer is not head}
    if transposed := [name for name, layer in layers.items() if isinstance(layer, Conv1D)]:
        raise DataError(
            f"model.lora: {transposed[0]} stores its weight transposed (Conv1D), which torl cannot merge with an "
            "adapter: train all weights (model.lora.rank = 0)"
        )
    linear = [name for name, layer in layers.items() if type(layer) is nn.Linear]  # a subclass may not be a product
    matches = {target: [name for name in linear if _matches(name, target)] for target in config.target_modules}
    if unknown := [target for target, names in matches.items() if not names]:
        known = sorted({name.rpartition(".")[2] for name in linear})
        raise DataError(
            f"model.lora.target_modules = {list(config.target_modules)}: no linear layer below the head is named "
            f"{' or '.join(unknown)} (fused experts and embeddings cannot be adapted); use {', '.join(known)}"
        )
    chosen = {name for names in matches.values() for name in names} if matches else set(linear)
    return [name for name in linear if name in chosen]


def _matches(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")


def adapted_layers(module: nn.Module) -> "list[LoraLayer]":
    """Return the layers with adapters."""
    return [layer for _, layer in _layers(module)]


@contextmanager
def disabled_adapters(module: nn.Module) -> Iterator[None]:
    """Disable adapters in a context, so that the module computes the base model."""
    layers = adapted_layers(module)
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


@dataclass(frozen=True, slots=True)
class MergedWeight:
    """A weight of the base model with its adapter, if any."""

    name: str
    """Name in the base model."""
    base: nn.Parameter
    adapter: "LoraLayer | None" = None

    @property
    def parameters(self) -> list[nn.Parameter]:
        """All parameters of the weight, which must be gathered before `value` under ZeRO-3."""
        if self.adapter is None:
            return [self.base]
        return [self.base, self.adapter.lora_A[_ADAPTER].weight, self.adapter.lora_B[_ADAPTER].weight]

    def value(self) -> Tensor:
        """Return W + alpha / rank * B A, summed in float32 and rounded once to the learner's precision."""
        if self.adapter is None:
            return self.base.detach()
        with torch.no_grad():
            base, first, second = self.parameters
            merged: Tensor = base.float() + self.adapter.scaling[_ADAPTER] * (second.float() @ first.float())
            return merged.to(first.dtype)


def merged_weights(module: nn.Module) -> list[MergedWeight]:
    """Return all weights of a model, with or without adapters, in order."""
    adapters = {f"{name}.base_layer.weight": layer for name, layer in _layers(module)}
    return [
        MergedWeight(name.replace(".base_layer.", "."), parameter, adapters.get(name))
        for name, parameter in module.named_parameters()
        if not _is_adapter(name)
    ]


def adapter_weights(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the adapters' parameters by their names in the module. Empty for a model without adapters."""
    return [(name, parameter) for name, parameter in module.named_parameters() if _is_adapter(name)]


def export_adapter(weights: Sequence[tuple[str, Tensor]], config: LoraConfig, base: str, directory: Path) -> None:
    """Write adapters to a directory that peft and vLLM load.

    Args:
        weights: Adapter weights by their names in the Hugging Face model.
        config: Settings of the adapters.
        base: Path of the base model.
        directory: Directory to write.
    """
    from safetensors.torch import save_file

    directory.mkdir(parents=True, exist_ok=True)
    settings = _peft_settings(config, sorted({name.split(".lora_")[0].rpartition(".")[2] for name, _ in weights}))
    settings.base_model_name_or_path = base
    settings.save_pretrained(directory)
    named = {f"{_PEFT_PREFIX}{name.replace(f'.{_ADAPTER}.', '.')}": tensor.contiguous() for name, tensor in weights}
    save_file(named, directory / "adapter_model.safetensors", metadata={"format": "pt"})


def _peft_settings(config: LoraConfig, targets: list[str]) -> Any:
    from peft import LoraConfig as PeftConfig

    return PeftConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        target_modules=targets,
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )


def _layers(module: nn.Module) -> "Iterator[tuple[str, LoraLayer]]":
    # Recognized by an attribute, so that a model without adapters does not require peft.
    return ((name, layer) for name, layer in module.named_modules() if hasattr(layer, "lora_A"))


def _is_adapter(name: str) -> bool:
    return ".lora_A." in name or ".lora_B." in name
