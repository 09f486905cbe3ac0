"""What controller and engine say to each other of a turn."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torl._core import Scanner, StopCondition, Vocabulary
from torl.errors import EngineError
from torl.types import SampledTurn, SamplingParameters

TURN_KEY = "torl_turn"
"""Where a request to vLLM carries its turn (`extra_args`)."""
TURN_SPANS = "torl_spans"
"""Where vLLM's answer says when the policy changed (`kv_transfer_params`, the one open field an answer has)."""

STOP_CONDITION_MET = "torl_end"
"""The stop reason, in vLLM's words, of a turn that ended at its `StopCondition`."""


def encode_turn(end: StopCondition, at_line_start: bool, key: str) -> dict[str, Any]:
    """The `extra_args` of a request; `key` names the turn when a block of it is announced."""
    return {TURN_KEY: {"key": key, "end": end.to_plain(), "at_line_start": at_line_start}}


def decode_turn(extra_args: Mapping[str, Any], vocabulary: Vocabulary) -> tuple[Scanner | None, str, bool]:
    """A scanner at the start of the turn (None where nothing ends it), and the key: what `encode_turn` was given.

    Last, whether an end token ends the turn also where it calls, as a chat model's message.
    """
    fields = extra_args[TURN_KEY]
    end = StopCondition.from_plain(fields["end"])
    reads_nothing = end.kind == "never" and not end.stops and end.tags is None
    scanner = None if reads_nothing else Scanner(vocabulary, end, fields["at_line_start"])
    return scanner, fields["key"], end.kind == "never" and end.tags is not None


def sampling_params(sampling: SamplingParameters, stop_token_ids: Sequence[int], extra_args: dict[str, Any]) -> Any:
    """vLLM's `SamplingParams` of a turn."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    return SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        seed=sampling.seed,
        stop_token_ids=list(stop_token_ids),
        logprobs=0,  # the sampled token's own
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
        extra_args=extra_args,
        skip_clone=True,
    )


def sampled_turn(output: Any, spans: Callable[[Sequence[tuple[int, int]]], tuple[tuple[int, int], ...]]) -> SampledTurn:
    """The turn that vLLM's `RequestOutput` holds; `spans` makes policy versions of what the scheduler noted.

    Raises:
        EngineError: it was ended by something else than the turn itself.
    """
    completion = output.outputs[0]
    reason = "end" if completion.stop_reason == STOP_CONDITION_MET else completion.finish_reason
    if reason not in ("stop", "length", "end"):
        raise EngineError(f"the engine ended request {output.request_id} with {reason!r}")
    return SampledTurn(
        token_ids=tuple(completion.token_ids),
        logprobs=tuple(completion.logprobs.logprobs),
        policy_versions=spans(output.kv_transfer_params[TURN_SPANS]),
        finish_reason=reason,
        cached_tokens=output.num_cached_tokens or 0,
    )
