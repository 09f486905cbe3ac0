"""What controller and engine say to each other of a turn beside its tokens. No vLLM."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torl._core import Scanner, Vocabulary

TURN_KEY = "torl_turn"
"""Where a request to vLLM carries its turn (`extra_args`)."""
TURN_SPANS = "torl_spans"
"""Where vLLM's answer says when the policy changed (`kv_transfer_params`, the one open field an answer has)."""

MARKER_STOP = "torl_end"
"""The stop reason of a turn that ended at what its `TurnEnd` says."""


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """What ends a turn beside an end-of-sequence token and its limit.

    `marker`: the bytes that do; None where nothing does. `at_line_start`: whether the text before the turn ends with a
    newline, or there is none.
    """

    marker: bytes | None
    at_line_start: bool

    def scanner(self, vocabulary: Vocabulary) -> Scanner:
        """A scanner at the start of the turn."""
        return Scanner(vocabulary, self.marker, self.at_line_start)


def encode_turn(end: TurnEnd, key: str) -> dict[str, Any]:
    """The `extra_args` of a request; `key` names the turn when a block of it is announced."""
    return {TURN_KEY: {"marker": end.marker, "at_line_start": end.at_line_start, "key": key}}


def decode_turn_end(fields: Mapping[str, Any]) -> TurnEnd:
    """What `encode_turn` was given."""
    return TurnEnd(fields["marker"], fields["at_line_start"])
