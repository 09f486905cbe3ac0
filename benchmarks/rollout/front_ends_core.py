"""A process that answers for the cores of several vLLM engines: prepared turns, after a delay, over vLLM's own sockets.

    python -m benchmarks.rollout.front_ends_core FILE DIRECTORY ENGINES

FILE holds a pickled tuple: turns that call a tool, turns that answer, and the tokens of a prompt. Engine N has its
sockets and its announcements in DIRECTORY/N. Used by `front_ends.py`.
"""

import asyncio
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import zmq
import zmq.asyncio
from vllm.v1.engine import (
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineCoreRequestType,
    FinishReason,
    UtilityOutput,
)
from vllm.v1.metrics.stats import PrefillStats
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder, UtilityResult

from torl.base.types import SampledTurn
from torl.components.engine.vllm.messages import STOP_CONDITION_MET, TURN_KEY, Announcer, encode_reply

SECONDS = (1.0, 6.0)  # that a turn takes
CODE = "total = sum(n * n for n in range(1, 101))\nprint(total)\n"


class StubCore:
    """The core of one engine."""

    def __init__(self, context: zmq.asyncio.Context, directory: Path, turns: tuple[Any, Any, int]) -> None:
        self._first, self._last, self._prompt_tokens = turns
        self._requests = context.socket(zmq.DEALER)
        self._requests.setsockopt(zmq.IDENTITY, (0).to_bytes(2, "little"))
        self._requests.connect(f"ipc://{directory}/input")
        self._outputs = context.socket(zmq.PUSH)
        self._outputs.connect(f"ipc://{directory}/output")
        self._announcer = Announcer(f"{directory}/blocks")
        self._decoder, self._utility_decoder = MsgpackDecoder(EngineCoreRequest), MsgpackDecoder()
        self._encoder = MsgpackEncoder()

    async def serve(self) -> None:
        """Answer until the process is killed."""
        await self._requests.send(b"")  # ready
        turns: set[asyncio.Task[None]] = set()
        while True:
            kind, *frames = await self._requests.recv_multipart(copy=False)
            match EngineCoreRequestType(bytes(kind.buffer)):
                case EngineCoreRequestType.ADD:
                    turn = asyncio.create_task(self._sample(self._decoder.decode(frames)))
                    turns.add(turn)
                    turn.add_done_callback(turns.discard)
                case EngineCoreRequestType.UTILITY:  # only asked for the supported tasks
                    _, call, _, _ = self._utility_decoder.decode(frames)
                    result = UtilityOutput(call, result=UtilityResult(("generate",)))
                    await self._send(EngineCoreOutputs(utility_output=result))

    async def _sample(self, request: EngineCoreRequest) -> None:
        assert request.prompt_token_ids is not None
        assert request.sampling_params is not None
        calls = len(request.prompt_token_ids) == self._prompt_tokens
        turns: list[SampledTurn] = self._first if calls else self._last
        seconds = random.uniform(*SECONDS)
        await asyncio.sleep(seconds / 2)
        if calls:
            self._announcer.block(request.sampling_params.extra_args[TURN_KEY]["key"], CODE)
        await asyncio.sleep(seconds / 2)
        turn = turns[request.sampling_params.seed % len(turns)]
        output = EngineCoreOutput(
            request.request_id,
            list(turn.token_ids),
            finish_reason=FinishReason.STOP,
            stop_reason=STOP_CONDITION_MET if calls else turn.token_ids[-1],
            kv_transfer_params=encode_reply([(0, 0)], np.asarray(turn.logprobs, np.float32).tobytes()),
            prefill_stats=PrefillStats(num_prompt_tokens=len(request.prompt_token_ids)),
        )
        await self._send(EngineCoreOutputs(outputs=[output], finished_requests={request.request_id}))

    async def _send(self, outputs: EngineCoreOutputs) -> None:
        self._announcer.step()
        await self._outputs.send_multipart(self._encoder.encode(outputs))


async def main(turns: tuple[Any, Any, int], directory: Path, engines: int) -> None:
    context = zmq.asyncio.Context()
    await asyncio.gather(*(StubCore(context, directory / str(number), turns).serve() for number in range(engines)))


if __name__ == "__main__":
    asyncio.run(main(pickle.loads(Path(sys.argv[1]).read_bytes()), Path(sys.argv[2]), int(sys.argv[3])))
