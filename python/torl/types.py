"""The words of torl as types: what the parts hand to each other. No torch, no vLLM, no DeepSpeed.

Axis suffix `_T`: the tokens of one trajectory's response, sampled and observed, without the prompt.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Int32Array: TypeAlias = npt.NDArray[np.int32]
Float32Array: TypeAlias = npt.NDArray[np.float32]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

FormatName: TypeAlias = Literal["torl", "zerotir"]
"""The protocols between model and interpreter (`torl.rollout.formats`)."""
InterpreterState: TypeAlias = Literal["fresh", "episode", "replay"]
"""What a code block finds of earlier ones (`torl.rollout.tool`)."""


# --- problems ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with its reference answer."""

    id: str
    question: str
    answer: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A problem in the template of a run, as the tokens the engine is given."""

    problem: Problem
    token_ids: tuple[int, ...]


# --- the sandbox ------------------------------------------------------------------------------------------


class OutcomeStatus(StrEnum):
    """How one run of untrusted code ended. Every member is data for the model, never a host failure."""

    OK = "ok"
    ERROR = "error"  # an uncaught Python exception, `sys.exit` with a non-zero code included
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    CRASH = "crash"  # the guest trapped, or its worker died twice on this code


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run did. `stdout` and `stderr` keep what was written before a limit was hit."""

    status: OutcomeStatus
    stdout: str
    stderr: str
    exception_type: str | None  # "ZeroDivisionError"
    exception_line: str | None  # the last line of the traceback: "ZeroDivisionError: division by zero"
    traceback: str | None
    cpu_seconds: float
    wall_seconds: float
    peak_memory_bytes: int
    value: str | None = None  # if asked for: `repr` of the last statement's value, unless it has none or None
    files: Mapping[str, bytes] = field(default_factory=dict, hash=False)  # if asked for: what the run made or changed

    @property
    def ok(self) -> bool:
        return self.status is OutcomeStatus.OK


# --- the engine -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """How one turn is sampled. `temperature == 0` is greedy."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """What the engine sampled in one turn, token for token.

    `logprobs[i]` is the engine's own log-probability of `token_ids[i]` after temperature. `policy_versions` are pairs
    (version, index of the first token it sampled), in order; more than one where the weights changed in flight.
    `finish_reason` is "stop" (end-of-sequence token, the last of the ids), "length" (`max_tokens` reached) or "end"
    (what the caller asked to end the turn at; some tokens may follow it).
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    policy_versions: tuple[tuple[int, int], ...]
    finish_reason: str
    cached_tokens: int  # of the prefix


# --- trajectories -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One execution inside a trajectory."""

    code: str
    outcome: Outcome
    observation: str  # the text spliced in, fences included
    start: int  # index in the response of the first observation token
    stop: int  # one past the last
    wait_seconds: float  # how long the episode waited for the outcome

    @property
    def ran(self) -> bool:
        """Whether anything ran: a call in a turn without a closed block is answered with a `NoCode` error instead."""
        return not (self.code == "" and self.outcome.exception_type == "NoCode")


@dataclass(frozen=True, slots=True)
class Turn:
    """One generation up to a stop: the sampled tokens [start, stop) of the response."""

    start: int
    stop: int
    cached_tokens: int


class FinishReason(StrEnum):
    """Why an episode ended."""

    STOP = "stop"  # the model sampled its end-of-sequence token
    LENGTH = "length"  # the response reached its token limit
    VOID = "void"  # a turn asked for output with nothing to run in it, and the run ends episodes there


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The record of one episode. The four `_T` arrays have one entry for each response token.

    On observed tokens `loss_mask_T` is False, `rollout_logprobs_T` is 0 and `policy_versions_T` is -1.
    """

    prompt: Prompt
    group: str  # equal for the trajectories that are compared with each other: "step/problem"
    sample: int  # index in the group
    token_ids_T: Int32Array
    loss_mask_T: BoolArray
    rollout_logprobs_T: Float32Array
    policy_versions_T: Int32Array
    turns: tuple[Turn, ...]
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason
    text: str  # the whole response, observations included
    sampled_text: str  # sampled tokens only; observations are replaced by one newline
    seconds: float
    format: FormatName = "torl"  # the protocol it was played in

    def __len__(self) -> int:
        return len(self.token_ids_T)


@dataclass(frozen=True, slots=True)
class Grade:
    """What the grader says of one trajectory."""

    reward: float
    correct: bool
    answer: str | None  # the last sampled \\boxed{...}, or None
    failure: str | None = None  # "timeout" or "error": the grader could not decide; counts as not correct


# --- learning ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """A trajectory as the learner sees it: tokens, mask, behaviour, what was found out about it; nothing about tools.

    All arrays run over prompt + response; the mask is False on the prompt and on observations, and the numbers are 0
    there. Whatever is None has not been computed, because nothing asks for it or because its time has not come.
    """

    token_ids: Int32Array
    loss_mask: BoolArray
    rollout_logprobs: Float32Array
    advantages: Float32Array | None = None
    old_logprobs: Float32Array | None = None  # the trainer's, before the first update of the step
    ref_logprobs: Float32Array | None = None  # the reference policy's
    values: Float32Array | None = None  # the critic's, before the first update of the step
    returns: Float32Array | None = None  # what the critic should have said

    def __len__(self) -> int:
        return len(self.token_ids)
