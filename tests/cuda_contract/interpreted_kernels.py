"""Run vLLM's Triton kernels of the sampler in Triton's interpreter, on CPU tensors, and print the results as JSON.

A separate program: the interpreter must be chosen before Triton is imported, and vLLM's build for the CPU replaces
Triton by a placeholder. Only the kernels' modules of vLLM are executed; what they import is passed in.
"""

import json
import os
import sys
from types import ModuleType
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl

from torl.learner.model.head import LogprobHead
from vllm_modules import installed_package

LOGITS = [0.0, 1.0, 2.0, 0.5, -1.0]
TEMPERATURE = 0.7
SEEDS = (1, 1 + (1 << 32), 1 << 62, (1 << 63) - 1)  # torl's seeds have 63 bits
TOKENS = 16  # a draw takes 60 ms in the interpreter


def module(name: str, **values: Any) -> ModuleType:
    found = ModuleType(name)
    vars(found).update(values)
    sys.modules[name] = found
    return found


def import_kernels() -> tuple[Any, Any]:
    """Return vLLM's modules of log-probabilities and of Gumbel sampling."""
    module("vllm", __path__=[str(installed_package())])
    module("vllm.triton_utils", tl=tl, triton=triton)
    module("vllm.sampling_params", MAX_LOGPROB_TOKEN_IDS=128, SamplingParams=object)
    module("vllm.v1.outputs", LogprobsTensors=object)
    module("vllm.v1.worker.gpu.buffer_utils", StagedWriteTensor=object, UvaBackedTensor=object)
    from vllm.v1.worker.gpu.sample import gumbel, logprob

    return logprob, gumbel


def logprob_gap(logprob: Any, gumbel: Any, temperature: float) -> float:
    """Return the largest difference between vLLM's and the learner's log-probabilities of one bfloat16 model."""
    torch.manual_seed(0)
    requests, width, vocabulary = 6, 64, 9000  # more than a block of each kernel
    head = torch.nn.Linear(width, vocabulary, bias=False, dtype=torch.bfloat16)
    hidden = torch.randn(requests, width, dtype=torch.bfloat16) * 4
    target = torch.randint(vocabulary, (requests,))
    with torch.no_grad():
        logits = torch.nn.functional.linear(hidden, head.weight).float()  # the sampler's copy
        gumbel.apply_temperature(logits, torch.arange(requests), torch.full((requests,), temperature))
        sampled = logprob.compute_token_logprobs(logits, target[:, None])[:, 0]
        trained, _ = LogprobHead(head, max_stored_logits=1 << 20)(hidden, target, temperature)
    return float((sampled - trained).abs().max())


def draws(gumbel: Any, seed: int, temperature: float, count: int = TOKENS) -> list[int]:
    """Return the tokens that a request with this seed draws at consecutive positions, from the same logits."""
    logits = torch.tensor([LOGITS]).expand(count, -1).contiguous()
    request = torch.zeros(count, dtype=torch.int64)
    seeds, temperatures = torch.tensor([seed], dtype=torch.int64), torch.tensor([temperature])
    gumbel.apply_temperature(logits, request, temperatures)
    sampled: list[int] = gumbel.gumbel_sample(
        logits, request, temperatures, seeds, torch.arange(count), apply_temperature=False, is_drafting=False
    ).tolist()
    return sampled


def main() -> None:
    """Print the results."""
    logprob, gumbel = import_kernels()
    result = {
        "logits": LOGITS,
        "temperature": TEMPERATURE,
        "gaps": {temperature: logprob_gap(logprob, gumbel, temperature) for temperature in (1.0, 0.6)},
        "draws": [draws(gumbel, seed, TEMPERATURE) for seed in SEEDS],
        "again": draws(gumbel, SEEDS[-1], TEMPERATURE, 4),
        "greedy": draws(gumbel, 1, 0.0, 4),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
