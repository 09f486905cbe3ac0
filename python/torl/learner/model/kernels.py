"""Which kernels a model's norms, rotary positions and gated layers run on: transformers' own, or Liger's on CUDA.

Liger is no part of torl. Which of them a rank has is a line of its log.
"""

from importlib.util import find_spec
from typing import Any

import torch

from torl.config import ModelConfig
from torl.errors import DataError


def use_kernels(causal_lm: Any, model: ModelConfig) -> str:
    """Give a Hugging Face model what `model.kernels` asks for, and say in words what it has now.

    Raises:
        DataError: "liger" is asked for, and it is not installed, or there is no GPU, or it does not know the model.
    """
    if model.kernels == "torch":
        return "torch's kernels, as asked for"
    missing = _what_is_missing(causal_lm.config.model_type)
    if missing is None:
        from liger_kernel.transformers.monkey_patch import _apply_liger_kernel_to_instance

        # Heads and losses are torl's own.
        _apply_liger_kernel_to_instance(causal_lm, fused_linear_cross_entropy=False, cross_entropy=False)
        return "Liger's kernels for norms, rotary positions and gated layers"
    if model.kernels == "liger":
        raise DataError(f"model.kernels = 'liger': {missing}; \"auto\" takes torch's where Liger's cannot be had")
    return f"torch's kernels: {missing}"


def _what_is_missing(model_type: str) -> str | None:
    if not torch.cuda.is_available():
        return "Liger's need a CUDA GPU"
    if find_spec("liger_kernel") is None:
        return "liger-kernel is not installed"
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    return None if model_type in MODEL_TYPE_TO_APPLY_LIGER_FN else f"Liger has none for {model_type}"
