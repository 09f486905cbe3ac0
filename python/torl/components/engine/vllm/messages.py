"""Messages between the controller and the engine's core.

A request to vLLM carries its stop condition to the scheduler. The reply carries policy versions and log-probabilities
back: vLLM's front end would spend microseconds of the controller's process on each token's log-probability. While a
turn is sampled, the core announces closed code blocks and computed steps as datagrams on a local socket. Announcements
are hints: a lost block costs time only, and a lost step is followed by others. The sender never waits.
"""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torl._core import Scanner, StopCondition, Vocabulary
from torl.base.errors import EngineError
from torl.base.types import SampledTurn, TurnFinish, TurnRequest

TURN_KEY = "torl_turn"
"""Key of the turn in a request's `extra_args`."""
STOP_CONDITION_MET = "torl_end"
"""vLLM's stop reason of a turn that ended at its `StopCondition`."""
_SPANS, _LOGPROBS = "torl_spans", "torl_logprobs"  # keys of a reply
_MAX_DATAGRAM_BYTES = 1 << 20
_STEP_INTERVAL_SECONDS = 0.5


def encode_turn(request: TurnRequest) -> dict[str, Any]:
    """Encode the `extra_args` of a request."""
    end = request.stop_condition.to_plain()
    return {TURN_KEY: {"key": request.id, "end": end, "at_line_start": request.at_line_start}}


def decode_turn(extra_args: Mapping[str, Any], vocabulary: Vocabulary) -> tuple[Scanner | None, str, bool]:
    """Decode the arguments that `encode_turn` has encoded.

    Returns:
        A scanner at the start of the turn, or None if nothing ends it, the id of the request, and whether an end token
        ends the turn even after a call, as in a chat model's message.
    """
    fields = extra_args[TURN_KEY]
    end = StopCondition.from_plain(fields["end"])
    reads_nothing = end.kind == "never" and not end.stops and end.tags is None
    scanner = None if reads_nothing else Scanner(vocabulary, end, fields["at_line_start"])
    return scanner, fields["key"], end.kind == "never" and end.tags is not None


def sampling_params(request: TurnRequest, stop_token_ids: Sequence[int]) -> Any:
    """vLLM's `SamplingParams` of a request."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    return SamplingParams(
        max_tokens=request.sampling.max_tokens,
        temperature=request.sampling.temperature,
        top_p=request.sampling.top_p,
        seed=request.sampling.seed,
        stop_token_ids=list(stop_token_ids),
        logprobs=0,  # of the sampled token only
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
        extra_args=encode_turn(request),
        skip_clone=True,
    )


def encode_reply(spans: Sequence[tuple[int, int]], logprobs: bytes) -> dict[str, Any]:
    """Encode the `kv_transfer_params` of a reply, its one open field.

    Args:
        spans: Pairs of the number of pauses so far and the first token sampled after them.
        logprobs: Log-probabilities of the tokens, as float32 in native byte order.
    """
    return {_SPANS: spans, _LOGPROBS: logprobs}


def decode_reply(reply: Mapping[str, Any]) -> tuple[Sequence[tuple[int, int]], tuple[float, ...]]:
    """Decode the spans and log-probabilities that `encode_reply` has encoded."""
    return reply[_SPANS], tuple(memoryview(reply[_LOGPROBS]).cast("f"))


def sampled_turn(output: Any, spans: Callable[[Sequence[tuple[int, int]]], tuple[tuple[int, int], ...]]) -> SampledTurn:
    """Convert vLLM's `RequestOutput`.

    Args:
        output: The output of a finished request.
        spans: Conversion of the scheduler's spans to policy versions.

    Raises:
        EngineError: The request ended for another reason than its turn.
    """
    completion = output.outputs[0]
    reason = "end" if completion.stop_reason == STOP_CONDITION_MET else completion.finish_reason
    if reason not in list(TurnFinish):
        raise EngineError(f"the engine ended request {output.request_id} with {reason!r}")
    pauses, logprobs = decode_reply(output.kv_transfer_params)
    return SampledTurn(
        token_ids=tuple(completion.token_ids),
        logprobs=logprobs,
        policy_versions=spans(pauses),
        finish_reason=TurnFinish(reason),
        cached_tokens=output.num_cached_tokens or 0,
    )


class Announcer:
    """The core's end of the announcement socket."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._path = path
        self._next_step = 0.0

    def block(self, turn: str, code: str) -> None:
        """Announce a closed block of a turn, unless the controller is slow or dead or the code too long."""
        self._send(["block", turn, code])

    def step(self) -> None:
        """Announce that tokens were computed. Sends at most twice a second, so it may be called after every step."""
        if (now := time.monotonic()) >= self._next_step:
            self._next_step = now + _STEP_INTERVAL_SECONDS
            self._send(["step"])

    def _send(self, message: list[Any]) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendto(json.dumps(message).encode(), self._path)


class Listener:
    """The controller's end of the announcement socket. Callbacks run on the event loop that `open` is called on."""

    def __init__(self, on_step: Callable[[], None]) -> None:
        """Set the callback for computed steps."""
        self._on_step = on_step
        self._socket: socket.socket | None = None
        self._callbacks: dict[str, Callable[[str], None]] = {}

    def open(self, directory: Path) -> str:
        """Start listening on a socket in `directory`; return its path."""
        path = str(directory / "blocks")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(path)
        asyncio.get_running_loop().add_reader(self._socket, self._read, self._socket)
        return path

    def subscribe(self, turn: str, callback: Callable[[str], None]) -> None:
        """Call `callback(code)` for each block of a turn from now on."""
        self._callbacks[turn] = callback

    def unsubscribe(self, turn: str) -> None:
        """Drop the callback of a turn that has ended, if it has one."""
        self._callbacks.pop(turn, None)

    def _read(self, receiver: socket.socket) -> None:
        while True:
            try:
                message = receiver.recv(_MAX_DATAGRAM_BYTES)
            except BlockingIOError:
                return
            match json.loads(message):
                case ["block", str(turn), str(code)]:
                    if (callback := self._callbacks.get(turn)) is not None:
                        callback(code)
                case ["step"]:
                    self._on_step()

    def close(self) -> None:
        """Stop listening. Safe to call twice."""
        listening, self._socket = self._socket, None
        if listening is not None:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
