"""The types that torl's packages exchange. Imports neither torch nor vLLM nor DeepSpeed.

Axis suffix `_T`: the tokens of one trajectory's response, sampled and observed, without the prompt.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from torl._core import StopCondition

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
    """A problem in the prompt template of a run, as tokens."""

    problem: Problem
    token_ids: tuple[int, ...]
    low_reward_token_ids: tuple[int, ...] = ()
    """The prompt that asks for a low reward, if the run's prompts state a reward goal."""
    high_reward_fraction: float = 1.0
    """Fraction of episodes whose prompt is `token_ids`."""

    def for_episode(self, seed: int) -> "Prompt":
        """The prompt of one episode. Its `seed` selects the reward goal."""
        if not self.low_reward_token_ids or seed / 2**63 < self.high_reward_fraction:
            return self
        return replace(self, token_ids=self.low_reward_token_ids)

    @property
    def wants_high_reward(self) -> bool | None:
        """Whether the prompt asks for a high reward. None if it states no reward goal."""
        return self.token_ids != self.low_reward_token_ids if self.low_reward_token_ids else None


# --- tools ------------------------------------------------------------------------------------------------


class OutcomeStatus(StrEnum):
    """Results of a tool call. Every member is data for the model, never a host failure."""

    OK = "ok"
    ERROR = "error"
    """An uncaught exception of the code, or an invalid argument."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    CRASH = "crash"
    """The process that ran the call died twice on it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a tool call."""

    status: OutcomeStatus
    text: str
    """Output of the tool, or one line that describes the error."""
    error: str | None = None
    """Type of the error, such as "ZeroDivisionError"."""
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Tool-specific JSON data. A format may show the "traceback" to the model."""

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.status is OutcomeStatus.OK


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A tool call of the model."""

    tool: str
    """Name of the tool."""
    arguments: Mapping[str, Any] = field(hash=False)
    """Arguments, as JSON data."""


@dataclass(frozen=True, slots=True)
class MalformedCall:
    """An invalid tool call. Nothing runs, and the model receives the error."""

    error: str
    """Type of the error, such as "NoCode"."""
    message: str

    @property
    def outcome(self) -> Outcome:
        """The outcome of the call, which counts as a failed one."""
        return Outcome(OutcomeStatus.ERROR, f"{self.error}: {self.message}", error=self.error)


@dataclass(frozen=True, slots=True)
class Markup:
    """Text of a chat template, in which the names of control tokens become these tokens."""

    text: str


ObservationText: TypeAlias = str | Sequence[str | Markup]
"""An observation: one text, or several in a row. Names of control tokens stay text except in `Markup`."""


# --- the engine -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """Sampling settings of one turn."""

    max_tokens: int
    temperature: float = 1.0
    """0 samples greedily."""
    top_p: float = 1.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A request for one turn, sampled after a prefix."""

    id: str
    """Unique among the pending requests of an engine."""
    prefix: Sequence[int]
    """All tokens before the turn, prompt included."""
    sampling: SamplingParameters
    stop_condition: StopCondition = field(default_factory=StopCondition.never)
    """The end of the turn, in addition to end-of-sequence tokens and `sampling.max_tokens`."""
    at_line_start: bool = True
    """Whether the text of `prefix` is empty or ends with a newline."""
    episode: int = 0
    """Number of the episode. Lower numbers take precedence, and all turns of an episode share a prefix cache."""
    group: str = ""
    """Name of the episodes with the same prompt, which is best computed once."""


class TurnFinish(StrEnum):
    """Reasons for which an engine ends a turn."""

    STOP = "stop"
    """An end-of-sequence token, the last of the ids."""
    LENGTH = "length"
    """`SamplingParameters.max_tokens`."""
    END = "end"
    """`TurnRequest.stop_condition`. Some tokens may follow the end."""


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """A turn as an engine sampled it, token for token."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """The engine's log-probability of each token, after temperature."""
    policy_versions: tuple[tuple[int, int], ...]
    """Pairs of a version and the index of its first token, in order. More than one if weights changed in flight."""
    finish_reason: TurnFinish
    cached_tokens: int
    """Tokens of the prefix that came from the prefix cache."""


# --- trajectories -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of a trajectory. The calls of a turn share one observation."""

    request: ToolRequest | None
    """The call, or None if nothing ran: it was malformed or exceeded the maximum number of calls."""
    outcome: Outcome
    observation: str
    """Text of the observation, including its markers."""
    start: int
    """Index of the first observation token in the response, which is the end of the turn."""
    stop: int
    """Index after the last observation token."""
    wait_seconds: float
    """Time that the episode waited for the outcome, after the outcomes of earlier calls of the turn."""

    @property
    def ran(self) -> bool:
        """Whether the call was executed. Otherwise its outcome is an error."""
        return self.request is not None

    @property
    def code(self) -> str:
        """The "code" argument of the call, or an empty text."""
        return str(self.request.arguments.get("code", "")) if self.request is not None else ""


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A user message of an environment or agent program inside an episode.

    All messages after a turn share one observation with the results of its calls.
    """

    text: str
    observation: str
    """Text of the observation, including the chat template's markers."""
    start: int
    """Index of the first observation token in the response, which is the end of the turn."""
    stop: int
    """Index after the last observation token."""


@dataclass(frozen=True, slots=True)
class Block:
    """A closed code block of a turn."""

    code: str
    start: int
    """Index of the first character of the code in the turn's text."""
    stop: int
    """Index after the last character."""


class StopReason(StrEnum):
    """Reasons for which a turn ends."""

    CALL = "call"
    """A tool call, at a position where the format ends turns."""
    STOP = "stop"
    """An end-of-sequence token, or a stop sequence."""
    LENGTH = "length"
    """The token limit of the response."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One generation of a trajectory, up to its end."""

    start: int
    """Index of the first token in the response."""
    stop: int
    """Index after the last token."""
    text: str
    stop_reason: StopReason
    blocks: tuple[Block, ...]
    """The closed code blocks."""
    cached_tokens: int
    """Tokens of the prefix that came from the prefix cache."""


class FinishReason(StrEnum):
    """Reasons for which an episode ends."""

    STOP = "stop"
    """An end-of-sequence token, or a stop sequence."""
    LENGTH = "length"
    """The token limit of the response."""
    VOID = "void"
    """A void turn: neither a valid call nor an answer, in a run that ends episodes at void turns."""
    ENVIRONMENT = "environment"
    """The environment's reply to the last turn."""
    MAX_TURNS = "turns"
    """The maximum number of turns."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The record of one episode. The four `_T` arrays have one entry for each response token.

    An episode of an agent program may have several token sequences: the trajectory is the one that was sampled last,
    and the others are its `branches`. Each sampled token is part of the response of exactly one of them; a shared
    prefix is part of the prompt in the others.

    On observed tokens `loss_mask_T` is False, `rollout_logprobs_T` is 0 and `policy_versions_T` is -1.
    """

    prompt: Prompt
    group_id: str
    """Name of the group, "batch/problem"."""
    sample_index: int
    """Index in the group."""
    token_ids_T: Int32Array
    loss_mask_T: BoolArray
    rollout_logprobs_T: Float32Array
    policy_versions_T: Int32Array
    turns: tuple[Turn, ...]
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason
    text: str
    """The whole response, including observations."""
    seconds: float
    format: str = "torl"
    """Name of the format."""
    branches: tuple["Trajectory", ...] = ()
    """The other token sequences of the episode, in the order of their starts."""
    answer: str | None = None
    """Answer of the agent program, if one drove the episode."""
    user_messages: tuple[UserMessage, ...] = ()
    """Messages of the environment or of the agent program."""
    environment_rewards: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Rewards of the environment, by part."""

    def __len__(self) -> int:
        return len(self.token_ids_T)

    @property
    def episode_trajectories(self) -> tuple["Trajectory", ...]:
        """All trajectories of the episode, with this one as the last."""
        return (*self.branches, self)

    @property
    def answer_text(self) -> str:
        """The text that contains the answer: an agent program's answer, or else all sampled text."""
        return self.sampled_text if self.answer is None else self.answer

    @property
    def sampled_text(self) -> str:
        """The text of the turns, joined by newlines."""
        return "\n".join(turn.text for turn in self.turns)

    def calls_in(self, turn: Turn) -> tuple[ToolCall, ...]:
        """The calls of a turn, in order."""
        return tuple(call for call in self.tool_calls if call.start == turn.stop)

    def user_messages_after(self, turn: Turn) -> tuple[str, ...]:
        """The user messages between a turn and the next one."""
        return tuple(message.text for message in self.user_messages if message.start == turn.stop)


@dataclass(frozen=True, slots=True)
class Group:
    """The trajectories of one prompt, in the order of their samples. Advantages compare them with each other."""

    prompt: Prompt
    trajectories: tuple[Trajectory, ...]
    """One trajectory per episode. Its branches share its grade."""
    max_response_tokens: int
    """Token limit of the responses."""


@dataclass(frozen=True, slots=True)
class Grade:
    """The grade of one trajectory."""

    reward: float
    """Reward at the last sampled token."""
    correct: bool
    answer: str | None
    """The extracted answer, such as the last sampled \\boxed{...}."""
    failure: str | None = None
    """"timeout" or "error" if the grader failed. The answer then counts as incorrect."""
    parts: Mapping[str, float] = field(default_factory=dict, hash=False)
    """The summands of `reward` by name, each logged. May be empty."""
    turn_rewards: tuple[float, ...] = ()
    """Additional rewards at the last token of each turn: one per turn, or none."""
    valid_format: bool = True
    """Whether the response has the format that the reward requires, if any."""

    @property
    def credited(self) -> bool:
        """Whether the answer is rewarded as correct: it is correct, in a valid format."""
        return self.correct and self.valid_format

    @property
    def total(self) -> float:
        """The reward including turn rewards."""
        return self.reward + sum(self.turn_rewards)


@dataclass(frozen=True, slots=True)
class ScoredTrajectory:
    """A trajectory with its grade and its reward for learning."""

    trajectory: Trajectory
    grade: Grade
    reward: float
    """Reward at the last sampled token, which may be normalized or shuffled."""

    @property
    def total(self) -> float:
        """The reward for learning, including turn rewards."""
        return self.reward + sum(self.grade.turn_rewards)

    @property
    def episode_trajectories(self) -> tuple["ScoredTrajectory", ...]:
        """All trajectories of the episode with its reward. Only the last one has the turn rewards."""
        grade = replace(self.grade, turn_rewards=())
        return (*(ScoredTrajectory(branch, grade, self.reward) for branch in self.trajectory.branches), self)


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """The scored trajectories of one prompt."""

    prompt: Prompt
    members: tuple[ScoredTrajectory, ...]

    @property
    def accuracy(self) -> float:
        """Fraction of correct members, in any format."""
        return sum(member.grade.correct for member in self.members) / len(self.members)

    @property
    def credited_fraction(self) -> float:
        """Fraction of members whose answer is rewarded as correct."""
        return sum(member.grade.credited for member in self.members) / len(self.members)

    @property
    def has_zero_variance(self) -> bool:
        """Whether all members have the same reward, including turn rewards. False for a group of one.

        Every advantage is then 0: nothing is learned, and DAPO's dynamic sampling draws another group.
        """
        return len(self.members) > 1 and len({member.total for member in self.members}) == 1


# --- learning ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """A trajectory as the learner receives it, without tools.

    All arrays cover prompt and response. The mask is False on the prompt and on observations, and the other arrays are
    0 there. An array is None if it is not needed or not computed yet.
    """

    token_ids: Int32Array
    loss_mask: BoolArray
    rollout_logprobs: Float32Array
    advantages: Float32Array | None = None
    old_logprobs: Float32Array | None = None
    """Log-probabilities of the trainer before the first update of the step."""
    token_rewards: Float32Array | None = None
    """Rewards of single tokens, in addition to the reward at the end."""
    ref_logprobs: Float32Array | None = None
    """Log-probabilities of the reference model."""
    values: Float32Array | None = None
    """Values of the critic before the first update of the step."""
    returns: Float32Array | None = None
    """Value targets of the critic."""
    episode: int | None = None
    """Equal for the samples of one episode. None for a sample that is a whole episode."""

    def __len__(self) -> int:
        return len(self.token_ids)
