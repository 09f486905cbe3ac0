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
import statistics
import time
from collections import deque
from typing import Any

import numpy as np
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.outputs import LogprobsLists, ModelRunnerOutput
from vllm.v1.serial_utils import MsgpackEncoder

from benchmarks.rollout.lone_scheduler import BLOCK, make_request, make_scheduler
from torl._core import StopCondition
from torl.base.paths import resolve_path
from torl.base.types import SamplingParameters, TurnRequest
from torl.components.engine.vllm.scheduler import AsyncTurnScheduler

PROMPT_TOKENS = 100
WARM_UP = 20
MARKER = StopCondition.marker(b"```output")


class Side:
    """A scheduler with requests, and a device that computes nothing."""

    def __init__(self, kind: Any, sequences: int, steps: int) -> None:
        max_tokens = PROMPT_TOKENS + WARM_UP + steps + 10
        limits = {
            "max_model_len": max_tokens,
            "max_num_seqs": sequences,
            "max_num_batched_tokens": max(16_384, PROMPT_TOKENS * sequences),
        }
        model, blocks = resolve_path("torl:demo/base_model"), 1 + sequences * -(-max_tokens // BLOCK)
        self.scheduler = make_scheduler(kind, model, limits, blocks=blocks, is_async=True, runner_v2=True)
        self.samples: list[float] = []
        self.messages: list[float] = []
        self._encoder = MsgpackEncoder()
        self._random = np.random.default_rng(0)
        self._in_flight: deque[tuple[Any, ModelRunnerOutput]] = deque()
        for number in range(sequences):
            prompt = [1 + (number + place) % 200 for place in range(PROMPT_TOKENS)]
            request = make_request(TurnRequest(str(number), prompt, SamplingParameters(max_tokens), MARKER))
            if kind is AsyncScheduler:
                request.sampling_params.extra_args = None
            self.scheduler.add_request(request)

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
        ours, theirs = (Side(kind, sequences, options.steps) for kind in (AsyncTurnScheduler, AsyncScheduler))
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
