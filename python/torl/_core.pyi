"""The native core: token scanning, trajectory splicing, packing, advantages.

Every refusal of an input is a `ValueError`; an integer that does not fit its type is an `OverflowError`.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, final

import numpy as np
import numpy.typing as npt

__all__ = [
    "CodeBlock",
    "MarkerMatch",
    "Scan",
    "Scanner",
    "StopCondition",
    "TrajectoryBuilder",
    "Vocabulary",
    "broadcast_to_tokens",
    "discounted_returns",
    "generalized_advantages",
    "group_advantages",
    "pack",
    "repetition",
    "row_sums",
    "whiten",
    "whiten_rows",
]

# --- scanner ----------------------------------------------------------------------------------------------

@final
class Vocabulary:
    """The bytes that each token id adds to the text; shared by all scanners made from it."""

    def __new__(cls, token_bytes: Sequence[bytes]) -> Vocabulary:
        """`token_bytes[i]` are the bytes of id i; empty for a special token. Ids beyond the list are empty too."""

    def __len__(self) -> int: ...
    def decode_bytes(self, token_ids: Sequence[int]) -> bytes:
        """The bytes of a sequence of tokens."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a sequence of tokens; invalid UTF-8 becomes U+FFFD, as in `bytes.decode(errors="replace")`."""

@final
class StopCondition:
    """The condition that ends a turn, in addition to an end-of-sequence token and the token limit. Hashable, picklable.

    The condition is a tool call or a stop string. `fences` selects the fences of code blocks: "lines" (alone on a line,
    see `Scanner`), "line_ends" (also at the end of a line, as in ToRL's code) or "anywhere" (as in ZeroTIR's).
    """

    @staticmethod
    def never(*, fences: str = "lines") -> StopCondition:
        """Return a condition without a call. `with_stops` adds stop strings."""
    @staticmethod
    def marker(bytes: bytes, *, fences: str = "lines") -> StopCondition:
        """Return a condition that is met by the last of these bytes, at any position, such as ``b"```output"``.

        Raises `ValueError` if the bytes are empty or the name of the fences is unknown.
        """
    @staticmethod
    def block(*, fences: str = "lines") -> StopCondition:
        """Return a condition that is met by the third backtick that closes the turn's first code block."""
    @staticmethod
    def tagged(open: bytes, close: bytes, *, ends_turn: bool = False) -> StopCondition:
        """Return a condition whose blocks are the text between two tags. With `ends_turn`, the first ends the turn.

        Raises `ValueError` if a tag is empty.
        """
    def without_call(self) -> StopCondition:
        """Return the condition without its call, for a turn after the last permitted tool call."""
    def with_stops(self, stops: Sequence[str]) -> StopCondition:
        """Return the condition with stop strings: the last character of any of them ends the response.

        Raises `ValueError` if one is empty.
        """
    @property
    def kind(self) -> Literal["never", "marker", "block"]: ...
    @property
    def marker_bytes(self) -> bytes | None:
        """The bytes of a marker; None for the other kinds."""
    @property
    def fences(self) -> Literal["lines", "line_ends", "anywhere", "tags"]: ...
    @property
    def tags(self) -> tuple[bytes, bytes] | None:
        """The bytes that open and close a block, if tags do instead of fences."""
    @property
    def stops(self) -> list[str]: ...
    def to_plain(self) -> dict[str, Any]:
        """Return strings, bytes, None, and lists and pairs of these, for a message to another process."""
    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> StopCondition:
        """Return the condition that `to_plain` encoded. Raises `ValueError` for other values."""
    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...

@final
class CodeBlock:
    """A closed code block. Bytes are counted from the start of the turn."""

    @property
    def code(self) -> str:
        """The text between the opening and the closing line; invalid UTF-8 becomes U+FFFD."""
    @property
    def start(self) -> int:
        """Offset of the first byte of the code."""
    @property
    def stop(self) -> int:
        """Offset one past the last byte of the code: where the closing line begins."""
    @property
    def overshoot(self) -> bytes:
        """The bytes after the third backtick of the closing line in its token."""

@final
class MarkerMatch:
    """The marker, complete. Bytes are counted from the start of the turn."""

    @property
    def start(self) -> int:
        """Offset of the marker's first byte."""
    @property
    def stop(self) -> int:
        """Offset one past the marker's last byte."""
    @property
    def overshoot(self) -> bytes:
        """The bytes of the turn's last token after the marker. They were sampled, but not scanned."""

@final
class Scan:
    """The result of one `Scanner.feed`."""

    @property
    def blocks(self) -> list[CodeBlock]:
        """The blocks that were closed, in order, all before the marker."""
    @property
    def marker(self) -> MarkerMatch | None: ...
    @property
    def stop(self) -> MarkerMatch | None:
        """The stop string that ended the turn."""
    @property
    def consumed(self) -> int:
        """Number of token ids read: all, or up to and including the one that ended the turn."""
    @property
    def overshoot(self) -> bytes | None:
        """The unread bytes after the end of the turn in its last token; None if the turn continues."""

@final
class Scanner:
    """Finds code blocks and the end of one turn in its tokens, exact to the byte.

    The result depends on the turn's bytes only, never on their division into tokens or calls. For "python", with
    the fences "lines":

    - A line that is ```` ```python ````, blanks (space, tab, carriage return), newline opens a block.
    - A line that begins with ```` ``` ```` closes an open block at its third backtick, regardless of the rest: the
      marker ```` ```output ```` closes a block that the model left open, ```` ```python ```` closes one and opens
      another.
    - The marker counts at any position; in the middle of a line of code it closes nothing (`block_is_open`).
    """

    def __new__(
        cls, vocabulary: Vocabulary, end: StopCondition, at_line_start: bool = True, *, language: str = "python"
    ) -> Scanner:
        """Create a scanner at the start of a turn.

        `end`: the condition that ends the turn.
        `at_line_start`: whether the text before the turn ends with a newline or is empty.
        `language`: the word after the three backticks that open a block.
        Raises `ValueError` for a language that is not 1 to 64 ASCII letters, digits, "+", "-" or "#".
        """

    def feed(self, token_ids: Sequence[int]) -> Scan:
        """Read tokens, up to and including the one that ends the turn.

        Raises `ValueError` if the turn has ended already: each turn needs a new scanner.
        """

    def feed_token(self, token_id: int) -> Scan | None:
        """Read one token. Return None, after little work, unless a block closes or the turn ends with it.

        Raises `ValueError` as `feed` does.
        """

    @property
    def block_is_open(self) -> bool:
        """Whether a block is open, or was open when the turn ended."""
    @property
    def is_finished(self) -> bool:
        """Whether the turn is over: what ends it has been found."""

# --- splice -----------------------------------------------------------------------------------------------

@final
class TrajectoryBuilder:
    """The record of an episode while it is played. Its four response arrays always have equal lengths.

    A call that raises changes nothing. The array properties are copies.
    """

    def __new__(cls, prompt_token_ids: Sequence[int]) -> TrajectoryBuilder: ...
    def append_sampled(self, token_ids: Sequence[int], logprobs: Sequence[float], policy_version: int) -> None:
        """Append sampled tokens; they continue the current turn or, after an observation, begin the next.

        Raises `ValueError` if the lengths differ, a logprob is not finite, an id or the version is negative.
        """

    def append_observation(self, token_ids: Sequence[int]) -> tuple[int, int]:
        """Append tokens that were not sampled, and end the turn. Returns their place [start, stop) in the response."""

    def __len__(self) -> int:
        """Tokens of the response."""

    def context(self) -> list[int]:
        """Prompt and response: the prompt of the next request."""
    @property
    def token_ids(self) -> npt.NDArray[np.int32]:
        """The response, shape (T,)."""
    @property
    def loss_mask(self) -> npt.NDArray[np.bool_]:
        """True on sampled tokens, shape (T,)."""
    @property
    def rollout_logprobs(self) -> npt.NDArray[np.float32]:
        """The engine's logprob of each sampled token, 0 on observations, shape (T,)."""
    @property
    def policy_versions(self) -> npt.NDArray[np.int32]:
        """The version that sampled each token, -1 on observations, shape (T,)."""
    @property
    def turns(self) -> list[tuple[int, int]]:
        """For each turn the place [start, stop) of its sampled tokens in the response."""

# --- kernels ----------------------------------------------------------------------------------------------

def pack(lengths: Sequence[int], capacity: int, ranks: int) -> list[list[list[int]]]:
    """Pack items of `lengths` tokens into rows of at most `capacity`: `result[rank][row]` lists item indices.

    Every rank gets the same number of rows, as few as first-fit decreasing finds, with nearly equal tokens; rows
    may be empty. Deterministic. Raises `ValueError` that names an item longer than `capacity`.
    """

def group_advantages(
    estimator: str, rewards: npt.NDArray[np.float64], groups: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """One advantage for each trajectory, shapes (N,). `groups[i]` names the group of trajectory i, in any order.

    `estimator`: "grpo", "dr_grpo" or "rloo" (`torl.components.algorithms.reward_advantages`). Raises `ValueError` for
    an unknown estimator, different lengths, a reward that is not finite, or rewards too far apart for float32.
    """

# The kernels below work on rows: concatenated trajectories of `lengths` (N,) tokens, whose sampled tokens have a true
# `mask` (M,). They ignore all other tokens, and return 0 for them. Sums are in float64.
# `ValueError` for shapes that do not fit, rewards (and values to whiten) that are not finite, and arrays that are not
# contiguous.

_Floats: TypeAlias = npt.NDArray[np.float32]
_Doubles: TypeAlias = npt.NDArray[np.float64]
_Integers: TypeAlias = npt.NDArray[np.int64]
_Mask: TypeAlias = npt.NDArray[np.bool_]

def broadcast_to_tokens(values: _Doubles, lengths: _Integers, mask: _Mask) -> _Floats:
    """One value for each row (N,), on its sampled tokens (M,)."""

def row_sums(values: _Floats, lengths: _Integers, mask: _Mask) -> _Doubles:
    """The sum of each row (N,) over its sampled tokens."""

def discounted_returns(
    rewards: _Doubles, token_rewards: _Floats | None, lengths: _Integers, mask: _Mask, discount: float
) -> _Floats:
    """Returns (M,): a row's reward (N,) arrives at its last sampled token, `token_rewards` (M,) at their own."""

def generalized_advantages(
    rewards: _Doubles,
    token_rewards: _Floats | None,
    values: _Floats,
    lengths: _Integers,
    mask: _Mask,
    discount: float,
    gae_lambda: float,
) -> tuple[_Floats, _Floats]:
    """GAE's advantages and returns (M,), from one sampled token to the next; rewards as in `discounted_returns`."""

def whiten(values: _Floats, lengths: _Integers, mask: _Mask) -> _Floats:
    """`values` (M,) with mean 0 and unbiased variance 1 over all sampled tokens (1e-8 is added to the variance)."""

def whiten_rows(values: _Doubles, lengths: _Integers, mask: _Mask) -> _Doubles:
    """`whiten` where all sampled tokens of a row have one value (N,)."""

def repetition(text: str) -> float:
    """Return the fraction of a text's substrings that occur earlier in it, from 0 to 1.

    ORZ's and ZeroTIR's `repeatness`, in linear time: 2 / (n (n + 1)) times the sum of the longest common prefixes of
    neighbors in the suffix array, over n characters.
    """
