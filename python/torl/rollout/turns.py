"""What controller and engine say to each other of a turn beside its tokens. No vLLM."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
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

    `marker`: the bytes that do; None: the first code block that closes does. `at_line_start`: whether the text before
    the turn ends with a newline, or there is none.
    """

    marker: bytes | None
    at_line_start: bool

    def scanner(self, vocabulary: Vocabulary) -> Scanner:
        """A scanner at the start of the turn."""
        return Scanner(vocabulary, self.marker, self.at_line_start, stop_at_block=self.marker is None)


def encode_turn(end: TurnEnd | None, key: str) -> dict[str, Any]:
    """The `extra_args` of a request; `key` names the turn when a block of it is announced."""
    return {TURN_KEY: {"key": key, "end": None if end is None else asdict(end)}}


def decode_turn(extra_args: Mapping[str, Any]) -> tuple[TurnEnd | None, str]:
    """What `encode_turn` was given."""
    fields = extra_args[TURN_KEY]
    return None if fields["end"] is None else TurnEnd(**fields["end"]), fields["key"]
