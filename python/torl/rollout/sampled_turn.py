"""What the engine sampled for a turn: by which policies, and how it ended."""

from collections.abc import Sequence

from torl._core import Scan, Vocabulary
from torl.types import SampledTurn, StopReason


def spans(sampled: SampledTurn, kept: int) -> list[tuple[slice, int]]:
    """The parts of a turn's first `kept` tokens that one policy sampled, each with its version."""
    firsts = [first for _, first in sampled.policy_versions]
    stops = [*firsts[1:], len(sampled.token_ids)]
    spans = zip(sampled.policy_versions, stops, strict=True)
    return [(slice(first, min(stop, kept)), version) for (version, first), stop in spans if first < kept]


def find_stop_reason(sampled: SampledTurn, scan: Scan) -> StopReason:
    """How it ended; whether it asks for a tool is for the format to say."""
    if scan.overshoot is not None:
        return StopReason.STOP
    if sampled.finish_reason == "end":
        raise RuntimeError("the engine ended a turn that is not at its end")
    return StopReason(sampled.finish_reason)


def ends_line(vocabulary: Vocabulary, token_ids: Sequence[int]) -> bool:
    """Whether the text of `token_ids` ends with a newline, or is empty."""
    for token_id in reversed(token_ids):
        if piece := vocabulary.decode_bytes([token_id]):
            return piece.endswith(b"\n")
    return True
