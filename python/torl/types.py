"""The words of torl as types: what the parts hand to each other. No torch, no vLLM, no DeepSpeed.

Axis suffix `_T`: the tokens of one trajectory's response, sampled and observed, without the prompt.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Int32Array: TypeAlias = npt.NDArray[np.int32]
Float32Array: TypeAlias = npt.NDArray[np.float32]
BoolArray: TypeAlias = npt.NDArray[np.bool_]


# --- problems ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with its reference answer."""

    id: str
    question: str
    answer: str
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A problem in the template of a run, as the tokens the engine is given."""

    problem: Problem
    """The problem."""
    token_ids: tuple[int, ...]
    """Tokens of the prompt."""
    variant: str | None = None
    """Name of the variant, if the template gives several."""
    weight: float = 1.0
    """Weight of the variant in the draw of an episode's prompt."""
    variants: tuple["Prompt", ...] = ()
    """The other variants of the prompt."""

    def for_episode(self, seed: int) -> "Prompt":
        """Return the prompt of one episode: this one or another variant, drawn by weight with `seed`, below 2**63."""
        variants = (self, *self.variants)
        position = seed / 2**63 * sum(each.weight for each in variants)
        for each in variants[:-1]:
            if position < each.weight:
                return each
            position -= each.weight
        return variants[-1]


# --- tools ------------------------------------------------------------------------------------------------


class OutcomeStatus(StrEnum):
    """How a call of a tool ended. Every member is data for the model, never a host failure."""

    OK = "ok"
    ERROR = "error"  # an uncaught exception of the code, an argument that is none
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    CRASH = "crash"  # what ran it died, and died again on the same call


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call of a tool gave: the same for every tool, but for `details`.

    `text` is what the tool says: what was printed or found, or one line on what went wrong. `details` are the tool's
    own, plain JSON; a "traceback" among them may be shown to the model.
    """

    status: OutcomeStatus
    text: str
    error: str | None = None  # the kind of error: "ZeroDivisionError"
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def ok(self) -> bool:
        """Whether the call ended well."""
        return self.status is OutcomeStatus.OK


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """What a model asks for: the name of a tool among those of the run, and the arguments of the call, plain JSON."""

    tool: str
    arguments: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True, slots=True)
class MalformedCall:
    """What asks for a tool and cannot be made: nothing runs, and the model is told what is wrong with it."""

    error: str  # the kind of error: "NoCode"
    message: str

    @property
    def outcome(self) -> Outcome:
        """What the model is told. It counts as a call, and as one that failed."""
        return Outcome(OutcomeStatus.ERROR, f"{self.error}: {self.message}", error=self.error)


@dataclass(frozen=True, slots=True)
class Markup:
    """What a chat template puts between texts: an added token of the vocabulary that it spells becomes that token."""

    text: str


ObservationText: TypeAlias = str | Sequence[str | Markup]
"""What is put in after a turn: a text, or several in a row. What is no `Markup` stays text, whatever it spells."""


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
    (what the caller asked to end the turn at, a call or a stop string; some tokens may follow it).
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    policy_versions: tuple[tuple[int, int], ...]
    finish_reason: str
    cached_tokens: int  # of the prefix


# --- trajectories -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call inside a trajectory. The calls of a turn have one observation, which answers all of them."""

    request: ToolRequest | None  # None: nothing ran, because the call was malformed, or one too many
    outcome: Outcome
    observation: str  # the text spliced in, fences included
    start: int  # index in the response of the first observation token: where the turn that asked has ended
    stop: int  # one past the last
    wait_seconds: float  # how long the episode waited for the outcome, after those of the same turn before it

    @property
    def ran(self) -> bool:
        """Whether anything ran: a call without a request is answered with an error instead."""
        return self.request is not None

    @property
    def code(self) -> str:
        """The code that was asked for; empty for a call that has none."""
        return str(self.request.arguments.get("code", "")) if self.request is not None else ""


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What an environment, or an agent program, said in the middle of an episode, as a message of the user.

    Several behind one turn, and the results of its calls before them, have one observation.
    """

    text: str
    observation: str  # the text spliced in, what stands around it included
    start: int  # index in the response of the first observation token: where the turn before has ended
    stop: int  # one past the last


@dataclass(frozen=True, slots=True)
class Block:
    """A closed code block; [start, stop) are the characters of its code in the text of its turn."""

    code: str
    start: int
    stop: int


class StopReason(StrEnum):
    """Why a turn ended."""

    CALL = "call"  # where its format ends turns, with a tool asked for
    STOP = "stop"  # the model sampled its end-of-sequence token, or a stop string
    LENGTH = "length"  # the response reached its token limit


@dataclass(frozen=True, slots=True)
class Turn:
    """One generation up to its end: the sampled tokens [start, stop) of the response, and what was found in them."""

    start: int
    stop: int
    text: str  # of these tokens
    stop_reason: StopReason
    blocks: tuple[Block, ...]  # the code blocks that it closed
    cached_tokens: int  # of its prefix, that the engine did not compute again


class FinishReason(StrEnum):
    """Why an episode ended."""

    STOP = "stop"  # the model sampled its end-of-sequence token, or a stop string
    LENGTH = "length"  # the response reached its token limit
    VOID = "void"  # a turn asked for output with nothing to run in it, and the run ends episodes there
    ENVIRONMENT = "environment"  # the environment answered the last turn, and ended the episode with that
    MAX_TURNS = "turns"  # the model wrote as many messages as it may


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The record of one episode. The four `_T` arrays have one entry for each response token.

    An episode that an agent program plays may take several token sequences: the trajectory is the one that was sampled
    last, and the others are its `branches`. Each sampled token is the response of one of them; what a branch shares
    with another is prompt there.

    On observed tokens `loss_mask_T` is False, `rollout_logprobs_T` is 0 and `policy_versions_T` is -1.
    """

    prompt: Prompt
    group_id: str  # equal for the trajectories that are compared with each other: "step/problem"
    sample_index: int  # index in the group
    token_ids_T: Int32Array
    loss_mask_T: BoolArray
    rollout_logprobs_T: Float32Array
    policy_versions_T: Int32Array
    turns: tuple[Turn, ...]
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason
    text: str  # the whole response, observations included
    seconds: float
    format: str = "torl"  # the name of the format it was played in
    branches: tuple["Trajectory", ...] = ()  # the others of its episode, in the order of their beginnings
    answer: str | None = None  # what the agent program gave as its answer, where one played
    user_messages: tuple[UserMessage, ...] = ()  # of its environment, or of its agent program
    environment_rewards: Mapping[str, float] = field(default_factory=dict, hash=False)  # by part

    def __len__(self) -> int:
        return len(self.token_ids_T)

    @property
    def episode_trajectories(self) -> tuple["Trajectory", ...]:
        """All trajectories of its episode; it is the last of them."""
        return (*self.branches, self)

    @property
    def answer_text(self) -> str:
        """The text that holds the answer of its episode: what an agent program gave, or else all that was sampled."""
        return self.sampled_text if self.answer is None else self.answer

    @property
    def sampled_text(self) -> str:
        """The text of its turns only; observations are replaced by one newline."""
        return "\n".join(turn.text for turn in self.turns)

    def calls_in(self, turn: Turn) -> tuple[ToolCall, ...]:
        """The calls that a turn asked for, in its order."""
        return tuple(call for call in self.tool_calls if call.start == turn.stop)

    def user_messages_after(self, turn: Turn) -> tuple[str, ...]:
        """What a user said between a turn and the next one."""
        return tuple(message.text for message in self.user_messages if message.start == turn.stop)


@dataclass(frozen=True, slots=True)
class Group:
    """The trajectories of one prompt, in the order of their samples: what is compared with each other.

    One for each episode; the branches of an episode share what is said of it.
    """

    prompt: Prompt
    trajectories: tuple[Trajectory, ...]
    max_response_tokens: int  # the limit they were played with
    grades: tuple["Grade", ...] = ()  # by the parts before, if the reward is a part of a rubric


@dataclass(frozen=True, slots=True)
class Grade:
    """What a reward says of one trajectory.

    `reward` arrives at the last sampled token. `parts`, where there are any, are what it is the sum of, by name, each
    logged. `turn_rewards` are paid besides, each at the last token of its turn: one for every turn, or none at all.
    """

    reward: float
    correct: bool = False
    answer: str | None = None  # the last sampled \\boxed{...}, or None
    failure: str | None = None  # "timeout" or "error": the grader could not decide; counts as not correct
    parts: Mapping[str, float] = field(default_factory=dict, hash=False)
    turn_rewards: tuple[float, ...] = ()
    valid_format: bool = True  # whether the response has the form that the reward asks for, where it asks for one

    @property
    def credited(self) -> bool:
        """Whether the answer is paid as right: it is, in a form that counts."""
        return self.correct and self.valid_format

    @property
    def total(self) -> float:
        """All that the trajectory is paid."""
        return self.reward + sum(self.turn_rewards)


@dataclass(frozen=True, slots=True)
class ScoredTrajectory:
    """A trajectory with its grade, and the reward at its end that the learner is told."""

    trajectory: Trajectory
    grade: Grade
    reward: float

    @property
    def total(self) -> float:
        """All that the learner is told it was paid, turns included."""
        return self.reward + sum(self.grade.turn_rewards)

    @property
    def episode_trajectories(self) -> tuple["ScoredTrajectory", ...]:
        """Each trajectory of its episode with what the episode is worth; turns are paid in the last of them."""
        grade = replace(self.grade, turn_rewards=())
        return (*(ScoredTrajectory(branch, grade, self.reward) for branch in self.trajectory.branches), self)


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """The scored trajectories of one prompt."""

    prompt: Prompt
    members: tuple[ScoredTrajectory, ...]

    @property
    def accuracy(self) -> float:
        """The share of its members that are correct, in whatever form."""
        return sum(member.grade.correct for member in self.members) / len(self.members)

    @property
    def credited_fraction(self) -> float:
        """The share of its members whose answer is paid as right."""
        return sum(member.grade.credited for member in self.members) / len(self.members)

    @property
    def has_zero_variance(self) -> bool:
        """Whether all members are paid the same, turns included; a group of one is not.

        Every advantage is 0 then: nothing is learned, and DAPO's dynamic sampling draws again.
        """
        return len(self.members) > 1 and len({member.total for member in self.members}) == 1


# --- learning ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """A trajectory as the learner sees it: tokens, mask, behavior, what was computed for it; nothing about tools.

    All arrays run over prompt + response; the mask is False on the prompt and on observations, and the numbers are 0
    there. Whatever is None has not been computed, because nothing asks for it or because its time has not come.
    """

    token_ids: Int32Array
    loss_mask: BoolArray
    rollout_logprobs: Float32Array
    advantages: Float32Array | None = None
    old_logprobs: Float32Array | None = None  # the trainer's, before the first update of the step
    token_rewards: Float32Array | None = None  # what is paid at single tokens, beside the reward at the end
    ref_logprobs: Float32Array | None = None  # the reference policy's
    values: Float32Array | None = None  # the critic's, before the first update of the step
    returns: Float32Array | None = None  # what the critic should have said
    episode: int | None = None  # equal for the samples of one episode; None for one that is an episode by itself

    def __len__(self) -> int:
        return len(self.token_ids)
