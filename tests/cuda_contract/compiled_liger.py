"""Compile the Triton kernels that Liger puts into a model for an H100, forward and backward.

Prints JSON: for each model type, the bytes of each kernel, and those that a layer saves of a token. A separate program,
because it replaces Triton's driver and launches nothing: Triton's compiler needs no GPU.
"""

import json
import sys
from typing import Any
from unittest.mock import patch

import torch
import triton
from transformers import AutoConfig, AutoModelForCausalLM
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from saved_tensors import saved_bytes
from torl.learner.model.loading import use_kernels
from torl.run.config import ModelConfig

TOKENS = 64


class H100:
    """As much of a driver as Triton's compiler asks for."""

    def get_current_target(self) -> Any:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compiled_kernels(model_type: str) -> dict[str, Any]:
    """Return the bytes of each kernel's machine code by its name, and those that a layer saves of a token."""
    settings = AutoConfig.for_model(
        model_type, vocab_size=64, hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4
    )
    settings.num_key_value_heads, settings.head_dim, settings.sliding_window = 2, 16, None
    settings._attn_implementation = "sdpa"
    model = AutoModelForCausalLM.from_config(settings, dtype=torch.bfloat16)
    with patch("torch.cuda.is_available", return_value=True):
        use_kernels(model, ModelConfig(path="m", kernels="liger"))
    sizes: dict[str, int] = {}
    run = JITFunction.run

    def compile_only(kernel: Any, *arguments: Any, warmup: bool, **settings: Any) -> Any:
        compiled = run(kernel, *arguments, warmup=True, **settings)
        sizes[kernel.__name__] = len(compiled.asm["cubin"])
        return compiled

    with patch.object(JITFunction, "run", compile_only):
        model(torch.zeros(1, 9, dtype=torch.int64)).logits.sum().backward()
        saved = saved_bytes(model, TOKENS)
    return {"config": settings.to_dict(), "kernels": sizes, "saved": saved / TOKENS}


if __name__ == "__main__":
    triton.runtime.driver.set_active(H100())
    print(json.dumps({model_type: compiled_kernels(model_type) for model_type in sys.argv[1:]}))
