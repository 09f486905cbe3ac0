"""Time that a step of the engine spends in its scheduler: torl's turns next to vLLM's own scheduler.

    python -m benchmarks.rollout.scheduler [--sequences 64 256 1024] [--steps 300]

On a GPU, a small model's forward pass takes less time than the Python code around it, which then limits sampling. Here
nothing is computed: a device returns random letters, as in vLLM's asynchronous scheduling two steps in flight. Both
schedulers have the same requests of 100 tokens, with log-probabilities, and take turns step by step. torl's also scans
each token for a marker. Medians over the steps, in milliseconds; "messages" is what vLLM then spends on encoding each
token's output for its front end, in a thread that shares the interpreter; torl sends one message at the end of a turn.
The last line is JSON: `vs_vllm_N` is vLLM's time by torl's with N sequences, without the messages.
"""

import argparse
import json
import logging
import pickle
import statistics
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import LogprobsLists, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.serial_utils import MsgpackEncoder
from vllm.v1.structured_output import StructuredOutputManager

from torl._core import StopCondition, Vocabulary
from torl.engine.vllm.messages import encode_turn
from torl.engine.vllm.process_setup import ProcessSetup
from torl.engine.vllm.scheduler import AsyncTurnScheduler
from torl.paths import resolve_path
from torl.types import SamplingParameters, TurnRequest

BLOCK = 16  # vLLM's default on a GPU
PROMPT_TOKENS = 100
WARM_UP = 20
MARKER = StopCondition.marker(b"```output")


class Side:
    """A scheduler with requests, and a device that computes nothing."""

    def __init__(self, kind: Any, vocabulary: Path, sequences: int, steps: int) -> None:
        max_tokens = PROMPT_TOKENS + WARM_UP + steps + 10
        config = AsyncEngineArgs(
            model=str(resolve_path("torl:demo/base_model")),
            skip_tokenizer_init=True,
            max_model_len=max_tokens,
            max_num_seqs=sequences,
            max_num_batched_tokens=max(16_384, PROMPT_TOKENS * sequences),
            block_size=BLOCK,
            enforce_eager=True,
            kv_cache_memory_bytes=1 << 20,
            scheduling_policy="priority",
        ).create_engine_config()
        config.scheduler_config.async_scheduling = True
        config.cache_config.num_gpu_blocks = blocks = 1 + sequences * -(-max_tokens // BLOCK)
        config.additional_config = ProcessSetup("", {}, str(vocabulary), "/nowhere")
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
        self.scheduler = kind(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(blocks, [], [KVCacheGroupSpec(["layer"], spec)]),
            structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK,
            log_stats=False,
        )
        self.scheduler.use_v2_model_runner = True  # vLLM's default on a GPU
        self.samples: list[float] = []
        self.messages: list[float] = []
        self._encoder = MsgpackEncoder()
        self._random = np.random.default_rng(0)
        self._in_flight: deque[tuple[Any, ModelRunnerOutput]] = deque()
        init_none_hash(sha256)
        hasher = get_request_block_hasher(BLOCK, sha256)
        for number in range(sequences):
            turn = encode_turn(TurnRequest(str(number), [], SamplingParameters(1), MARKER))
            parameters = SamplingParams(
                max_tokens=max_tokens,
                stop_token_ids=[0],
                logprobs=0,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
                extra_args=turn if kind is AsyncTurnScheduler else None,
            )
            prompt = [1 + (number + place) % 200 for place in range(PROMPT_TOKENS)]
            self.scheduler.add_request(Request(str(number), prompt, parameters, None, block_hasher=hasher))

    def step(self) -> None:
        """Schedule a step, and take the results of the one before."""
        started = time.perf_counter()
        step = self.scheduler.schedule()
        scheduled = time.perf_counter()
        self._in_flight.append((step, self._compute(step)))
        if len(self._in_flight) < 2:
            return
        computed = time.perf_counter()
        batches = self.scheduler.update_from_output(*self._in_flight.popleft())
        updated = time.perf_counter()
        for batch in batches.values():
            self._encoder.encode(batch)
        self.samples.append(scheduled - started + updated - computed)
        self.messages.append(time.perf_counter() - updated)

    def _compute(self, step: Any) -> ModelRunnerOutput:
        names = list(step.num_scheduled_tokens)
        tokens = self._random.integers(ord("a"), ord("z") + 1, (len(names), 1))
        logprobs = LogprobsLists(tokens, np.zeros(tokens.shape, np.float32), np.zeros(len(names), np.int32))
        return ModelRunnerOutput(names, {name: row for row, name in enumerate(names)}, tokens.tolist(), logprobs)


def main() -> None:
    """Print a line for each number of sequences, then the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    result: dict[str, float] = {}
    for sequences in options.sequences:
        with tempfile.NamedTemporaryFile() as vocabulary:
            vocabulary.write(pickle.dumps(Vocabulary([b"", *(bytes([value]) for value in range(1, 256))])))
            vocabulary.flush()
            kinds = (AsyncTurnScheduler, AsyncScheduler)
            ours, theirs = (Side(kind, Path(vocabulary.name), sequences, options.steps) for kind in kinds)
        for _ in range(WARM_UP + options.steps):
            ours.step()
            theirs.step()
        mine, plain = (1e3 * statistics.median(side.samples[WARM_UP:]) for side in (ours, theirs))
        messages = 1e3 * statistics.median(theirs.messages[WARM_UP:])
        print(f"{sequences} sequences: torl {mine:.2f} ms, vLLM {plain:.2f} ms and messages {messages:.2f} ms")
        result |= {f"torl_ms_{sequences}": round(mine, 3), f"vllm_ms_{sequences}": round(plain, 3)}
        result |= {f"vllm_messages_ms_{sequences}": round(messages, 3), f"vs_vllm_{sequences}": round(plain / mine, 2)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
