"""The native core: token scanning, trajectory splicing, packing, advantages, the sandbox.

Every refusal of an input is a `ValueError`; an integer that does not fit its type is an `OverflowError`.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import NoReturn, TypeAlias, final

import numpy as np
import numpy.typing as npt

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
class CodeBlock:
    """A closed ```` ```python ```` block. Bytes and tokens are counted from the start of the turn."""

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
    def token_index(self) -> int:
        """The token that holds the third backtick of the closing line."""
    @property
    def overshoot(self) -> bytes:
        """What that token holds after the backtick."""

@final
class Marker:
    """The stop marker, complete. Bytes and tokens are counted from the start of the turn."""

    @property
    def start(self) -> int:
        """Offset of the marker's first byte."""
    @property
    def stop(self) -> int:
        """Offset one past the marker's last byte."""
    @property
    def token_index(self) -> int:
        """The token that holds the marker's last byte: the last token of the turn."""
    @property
    def overshoot(self) -> bytes:
        """What that token holds after the marker; it has been sampled, and it has not been scanned."""
    @property
    def inside_block(self) -> bool:
        """Whether a block was still open: the marker stands in the middle of a line of code."""

@final
class Scan:
    """What one `Scanner.feed` found."""

    @property
    def blocks(self) -> list[CodeBlock]:
        """The blocks that were closed, in order, all before the marker."""
    @property
    def marker(self) -> Marker | None: ...
    @property
    def consumed(self) -> int:
        """How many of the ids were read: all of them, or up to and including the one that ended the turn."""
    @property
    def overshoot(self) -> bytes | None:
        """What the token that ended the turn holds beyond that end, unread; None if the turn goes on."""

@final
class Scanner:
    """Finds code blocks and the end of the turn in its tokens, exact to the byte.

    What is found depends on the turn's bytes only, never on how they are cut into tokens or calls:

    - A line that is ```` ```python ````, blanks (space, tab, carriage return), newline opens a block.
    - A line that begins with ```` ``` ```` closes an open block at its third backtick, whatever follows: the marker
      ```` ```output ```` closes a block that the model left open, and ```` ```python ```` closes one and opens another.
    - The marker counts wherever it stands; in the middle of a line of code it closes nothing (`Marker.inside_block`).
    """

    def __new__(
        cls, vocabulary: Vocabulary, marker: bytes | None, at_line_start: bool = True, *, stop_at_block: bool = False
    ) -> Scanner:
        """A scanner at the start of a turn.

        `marker`: what ends the turn, for example ``b"```output"``; None where nothing does (no tool calls left).
        `at_line_start`: whether the text before the turn ends with a newline, or there is none.
        `stop_at_block`: the first block ends the turn, at the third backtick that closes it.
        Raises `ValueError` for an empty marker, and for a marker where blocks end turns.
        """

    def feed(self, token_ids: Sequence[int]) -> Scan:
        """Read tokens, up to and including the one that ends the turn.

        Raises `ValueError` if the turn was over before: call `reset` first.
        """

    def feed_token(self, token_id: int) -> Scan | None:
        """Read one token; None, and next to no work, unless a block closes or the turn ends with it.

        Raises `ValueError` as `feed` does.
        """

    def reset(self, at_line_start: bool = True) -> None:
        """Begin the next turn: half a marker and an open block are forgotten, all counts start at 0."""
    @property
    def position(self) -> int:
        """Bytes read in this turn."""
    @property
    def tokens(self) -> int:
        """Tokens read in this turn."""
    @property
    def block_is_open(self) -> bool:
        """Whether a block has been opened and not yet closed."""
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
    def prompt_length(self) -> int: ...
    @property
    def sampled_length(self) -> int:
        """Sampled tokens of the response: the sum of the loss mask."""
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

    `estimator`: "grpo", "dr_grpo" or "rloo"; see `torl.algorithms.advantages`. Raises `ValueError` for an unknown
    estimator, different lengths, or a reward that is not finite.
    """

# The kernels below work on rows: trajectories laid end to end, `lengths` (N,) tokens each, their sampled tokens where
# `mask` (M,) is true. They pass over all other tokens, whatever stands there, and give 0 there. Sums are in float64.
# `ValueError` for shapes that do not fit, rewards that are not finite, and arrays that are not contiguous.

_Floats: TypeAlias = npt.NDArray[np.float32]
_Doubles: TypeAlias = npt.NDArray[np.float64]
_Integers: TypeAlias = npt.NDArray[np.int64]
_Mask: TypeAlias = npt.NDArray[np.bool_]

def spread(values: _Doubles, lengths: _Integers, mask: _Mask) -> _Floats:
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

# --- sandbox ----------------------------------------------------------------------------------------------

# The fields of `torl.types.Outcome`, in its order, the files as pairs of path and content; and the state of the session
# after the run.
_OutcomeFields: TypeAlias = tuple[
    str,
    str,
    str,
    str | None,
    str | None,
    str | None,
    float,
    float,
    int,
    str | None,
    list[tuple[bytes, bytes]],
    SandboxState | None,
]

@final
class SandboxState:
    """What a session carries from one run to the next: a value, of which several runs may go on."""

    def __new__(cls) -> SandboxState:
        """The state before the first run."""

    def __len__(self) -> int:
        """Bytes that the state takes."""

@final
class SandboxRequest:
    """One run to do."""

    def __new__(
        cls,
        code: bytes,
        *,
        seed: int,
        stdin: bytes,
        files: Sequence[tuple[str, bytes]],
        return_files: bool,
        value: bool,
        state: SandboxState | None,
        cpu_seconds: float,
        wall_seconds: float,
        memory_bytes: int,
        output_bytes: int,
        files_bytes: int,
    ) -> SandboxRequest:
        """`files` are pairs of path and content; `state` is that of the session the run goes on with, None: of none.

        Raises `ValueError` for times that are none.
        """

@final
class SandboxRun:
    """A run that was submitted."""

    def cancel(self) -> bool:
        """Take the run out of the queue, or kill its worker. False when it was over already."""

@final
class SandboxWorkers:
    """Worker processes with the guest loaded. `torl.sandbox.SandboxPool` is the face of this class."""

    def __new__(
        cls,
        command: Sequence[str],
        cache: str | PathLike[str],
        workers: int,
        reuse_guest: bool,
        verify_every: int,
        shared_bytes: int,
    ) -> SandboxWorkers:
        """Start `workers` processes by `command`, which must call `serve_sandbox`; wait until all have run code.

        Raises `torl.errors.SandboxError` when the guest in `cache` is missing or damaged, or a worker does not start.
        """

    def run(self, request: SandboxRequest) -> _OutcomeFields:
        """Run and wait; the exception of a signal handler cancels the run.

        Raises `torl.errors.SandboxError`, or `ValueError` for files that cannot be.
        """

    def run_batch(self, requests: Sequence[SandboxRequest]) -> list[_OutcomeFields]:
        """Run all and wait for all, in order. Raises `torl.errors.SandboxError`; the others are cancelled then."""

    def submit(
        self, request: SandboxRequest, callback: Callable[[_OutcomeFields | None, Exception | None], object]
    ) -> SandboxRun:
        """Put a run at the end of the queue. `callback(outcome, error)` is called once, on another thread or here.

        It gets the fields of an outcome, or a `SandboxError`, or a `ValueError` for files that cannot be, or neither
        when the run was cancelled.
        """

    def statistics(self) -> dict[str, int]:
        """Counts by outcome, `shared`, `cancelled`, `retried`, `workers_replaced`; `queued` and `running` now."""

    def latency(self) -> list[tuple[float, int]]:
        """`(upper bound in seconds, runs)` of every bucket up to the last that has any."""

    def why_fresh(self) -> str | None:
        """Why no guest is kept from run to run; None if one is."""

    def confinement(self) -> tuple[int | None, bool, list[str]]:
        """The fields of `torl.sandbox.Confinement`, in its order."""

    def processes(self) -> list[int]:
        """The process ids of the workers that are alive."""

    def close(self) -> None:
        """Kill the workers. Runs that are queued or running end in a `SandboxError`."""

def prepare_sandbox(
    command: Sequence[str],
    artifacts: str | PathLike[str],
    cache: str | PathLike[str],
    progress: Callable[[str, float], object],
) -> None:
    """Prepare the guest in a child process, unless `cache` holds it. `progress(stage, fraction done)`.

    Raises `torl.errors.SandboxError`, or whatever `progress` raises, which gives the preparation up.
    """

def sandbox_files(cache: str | PathLike[str]) -> list[Path]:
    """Where this build keeps the parts of its guest in `cache`: module, memory image, standard library."""

def serve_sandbox() -> NoReturn:
    """Turn this process into a sandbox worker on the socket that is its standard input."""
