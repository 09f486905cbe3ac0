"""The data types that torl's packages exchange. No torch, no vLLM, no DeepSpeed.

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
    """A question with its reference answer.

    Attributes:
        id: Unique name of the problem.
        question: Text of the question.
        answer: Reference answer.
        metadata: Further fields of the problem, such as its source or level.
    """

    id: str
    question: str
    answer: str
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A problem in the prompt template of a run.

    Attributes:
        problem: Problem of the prompt.
        token_ids: Tokens of the prompt.
        variant: Name of the variant, if the template gives several.
        weight: Weight of the variant in the draw of an episode's prompt.
        variants: The other variants of the prompt.
    """

    problem: Problem
    token_ids: tuple[int, ...]
    variant: str | None = None
    weight: float = 1.0
    variants: tuple["Prompt", ...] = ()

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
    """The status of a tool call. Every status is data for the model, never a host failure.

    Attributes:
        OK: The call succeeded.
        ERROR: The code raised an exception, or an argument is invalid.
        TIMEOUT: The call exceeded its time limit.
        MEMORY: The call exceeded its memory limit.
        OUTPUT_LIMIT: The call printed too much.
        CRASH: The process that executed the call died, and died again in a second attempt.
    """

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    CRASH = "crash"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a tool call.

    Attributes:
        status: Status of the call.
        text: Output of the tool: printed text, search results, or a line that describes an error.
        error: Type of the error, such as "ZeroDivisionError".
        details: Further results of the tool, as plain JSON. A "traceback" may be shown to the model.
    """

    status: OutcomeStatus
    text: str
    error: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.status is OutcomeStatus.OK


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A tool call that the model requests.

    Attributes:
        tool: Name of the tool in the run.
        arguments: Arguments of the call, as plain JSON.
    """

    tool: str
    arguments: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True, slots=True)
class MalformedCall:
    """A tool call that cannot be executed. The model receives an error message instead.

    Attributes:
        error: Type of the error, such as "NoCode".
        message: Description of the error.
    """

    error: str
    message: str

    @property
    def outcome(self) -> Outcome:
        """Outcome shown to the model. It counts as a failed call."""
        return Outcome(OutcomeStatus.ERROR, f"{self.error}: {self.message}", error=self.error)


@dataclass(frozen=True, slots=True)
class Markup:
    """Markup of a chat template. Added tokens of the vocabulary in its text are encoded as such.

    Attributes:
        text: Text of the markup.
    """

    text: str


ObservationText: TypeAlias = str | Sequence[str | Markup]
"""Text inserted after a turn, in one or several parts. Parts other than `Markup` never become added tokens."""


# --- the engine -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """Sampling settings of one turn.

    Attributes:
        max_tokens: Maximum number of sampled tokens.
        temperature: Sampling temperature. 0 samples greedily.
        top_p: Probability mass of nucleus sampling.
        seed: Random seed of the turn.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A request for one turn, sampled after a prefix.

    Attributes:
        id: Unique among the pending requests of an engine.
        prefix: All tokens before the turn, prompt included.
        sampling: Sampling settings.
        stop_condition: End of the turn, in addition to end-of-sequence tokens and `sampling.max_tokens`.
        at_line_start: Whether the text of `prefix` is empty or ends with a newline.
        episode: Number of the episode. Lower numbers take precedence; the turns of an episode share a prefix cache.
        group: Name that the episodes of one prompt share. Engines may compute their common prefix once.
    """

    id: str
    prefix: Sequence[int]
    sampling: SamplingParameters
    stop_condition: StopCondition = field(default_factory=StopCondition.never)
    at_line_start: bool = True
    episode: int = 0
    group: str = ""


class TurnFinish(StrEnum):
    """The reason why an engine ended a turn.

    Attributes:
        STOP: The model sampled an end-of-sequence token, the last of the turn.
        LENGTH: The turn reached `SamplingParameters.max_tokens`.
        END: The turn met its `TurnRequest.stop_condition`. Some tokens may follow the end.
    """

    STOP = "stop"
    LENGTH = "length"
    END = "end"


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """A turn as an engine sampled it, token for token.

    Attributes:
        token_ids: Sampled tokens.
        logprobs: Log-probabilities of the tokens according to the engine, after temperature. For a greedy turn, at
            temperature 1.
        policy_versions: Pairs of a policy version and the index of its first token, in order. There is more than one
            pair if the weights changed in flight.
        finish_reason: Reason why the turn ended.
        cached_tokens: Number of prefix tokens that the engine found in its prefix cache.
        replica: Number of the engine's replica that sampled it.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    policy_versions: tuple[tuple[int, int], ...]
    finish_reason: TurnFinish
    cached_tokens: int
    replica: int = field(default=0, compare=False)


# --- trajectories -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call in a trajectory. The calls of one turn share an observation.

    Attributes:
        request: Executed request. None if nothing was executed, because the call was malformed or above the limit.
        outcome: Outcome of the call.
        observation: Inserted text, fences included.
        start: Index in the response of the first observation token, which is the end of the turn with the call.
        stop: Index after the last observation token.
        wait_seconds: Time that the episode waited for the outcome, after the outcomes of the turn's earlier calls.
    """

    request: ToolRequest | None
    outcome: Outcome
    observation: str
    start: int
    stop: int
    wait_seconds: float

    @property
    def ran(self) -> bool:
        """Whether the call was executed."""
        return self.request is not None

    @property
    def code(self) -> str:
        """Code argument of the call. Empty for calls without code."""
        return str(self.request.arguments.get("code", "")) if self.request is not None else ""


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A user message that an environment or an agent program sent during an episode.

    Several messages after the same turn share one observation, which also holds the results of the turn's calls.

    Attributes:
        text: Text of the message.
        observation: Inserted text, markup included.
        start: Index in the response of the first observation token, which is the end of the previous turn.
        stop: Index after the last observation token.
    """

    text: str
    observation: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Block:
    """A closed code block.

    Attributes:
        code: Code of the block.
        start: Index in the text of the turn of the first character of the code.
        stop: Index after the last character of the code.
        token: Index in the turn of the token that contains the first character of the code.
    """

    code: str
    start: int
    stop: int
    token: int


class StopReason(StrEnum):
    """The reason why a turn ended.

    Attributes:
        CALL: The stop condition of the format, which marks the end of tool calls.
        STOP: An end-of-sequence token or a stop sequence.
        LENGTH: The token limit of the response.
    """

    CALL = "call"
    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Turn:
    """One generation of the model: the sampled tokens [start, stop) of the response.

    Attributes:
        start: Index in the response of the first token.
        stop: Index after the last token.
        text: Text of these tokens.
        stop_reason: Reason why the turn ended.
        blocks: Code blocks closed in the turn.
        cached_tokens: Number of prefix tokens that the engine found in its prefix cache.
        replica: Number of the engine's replica that sampled it.
    """

    start: int
    stop: int
    text: str
    stop_reason: StopReason
    blocks: tuple[Block, ...]
    cached_tokens: int
    replica: int = field(default=0, compare=False)


class FinishReason(StrEnum):
    """The reason why an episode ended.

    Attributes:
        STOP: The model sampled an end-of-sequence token or a stop sequence.
        LENGTH: The response reached its token limit.
        VOID: A turn requested output without a call to execute, and the run ends episodes at such turns.
        ENVIRONMENT: The environment ended the episode in its reply to the last turn.
        MAX_TURNS: The model wrote the maximum number of messages.
    """

    STOP = "stop"
    LENGTH = "length"
    VOID = "void"
    ENVIRONMENT = "environment"
    MAX_TURNS = "turns"


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The record of one episode. The four `_T` arrays have one entry for each response token.

    The episode of an agent program may consist of several token sequences. The trajectory is the sequence that was
    sampled last; the others are its `branches`. Each sampled token is a response token of exactly one sequence, and a
    prompt token of the sequences that share it.

    Attributes:
        prompt: Prompt of the episode.
        group_id: Name of the group whose trajectories are compared with each other: "step/problem".
        sample_index: Index in the group.
        token_ids_T: Tokens of the response.
        loss_mask_T: True for sampled tokens, False for observed tokens.
        rollout_logprobs_T: Log-probabilities according to the engine; 0 for observed tokens.
        policy_versions_T: Versions of the policy that sampled the tokens; -1 for observed tokens.
        turns: Turns of the model.
        tool_calls: Tool calls of all turns.
        finish_reason: Reason why the episode ended.
        text: Text of the response, observations included.
        seconds: Duration of the episode.
        format: Name of the format that parsed it.
        branches: Other trajectories of the episode, in the order in which they started.
        answer: Answer of the agent program, if one drove the episode.
        user_messages: Messages of the environment or the agent program.
        environment_rewards: Rewards of the environment, by part.
    """

    prompt: Prompt
    group_id: str
    sample_index: int
    token_ids_T: Int32Array
    loss_mask_T: BoolArray
    rollout_logprobs_T: Float32Array
    policy_versions_T: Int32Array
    turns: tuple[Turn, ...]
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason
    text: str
    seconds: float
    format: str = "torl"
    branches: tuple["Trajectory", ...] = ()
    answer: str | None = None
    user_messages: tuple[UserMessage, ...] = ()
    environment_rewards: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __len__(self) -> int:
        """Return the number of response tokens, observed ones included."""
        return len(self.token_ids_T)

    def __repr__(self) -> str:
        counts = {"turn": len(self.turns), "call": len(self.tool_calls), "token": len(self)}
        numbers = ", ".join(f"{count} {noun}{'s' * (count != 1)}" for noun, count in counts.items())
        return f"<Trajectory {self.sample_index} of {self.group_id}: {numbers}, finish reason {self.finish_reason}>"

    @property
    def episode_trajectories(self) -> tuple["Trajectory", ...]:
        """All trajectories of the episode, this one last."""
        return (*self.branches, self)

    @property
    def answer_text(self) -> str:
        """Text that contains the answer: the answer of the agent program, or else all sampled text."""
        return self.sampled_text if self.answer is None else self.answer

    @property
    def sampled_text(self) -> str:
        """Text of all turns, with a newline instead of each observation."""
        return "\n".join(turn.text for turn in self.turns)

    @property
    def has_code(self) -> bool:
        """Whether a turn has a code block."""
        return any(turn.blocks for turn in self.turns)

    @property
    def first_code(self) -> int | None:
        """Index in the response of the first token of code: of the first block, or else of the first turn with a call.

        None for a response without blocks and calls.
        """
        starts = [turn.start + turn.blocks[0].token for turn in self.turns if turn.blocks]
        if starts:
            return starts[0]
        called = {call.start for call in self.tool_calls}
        return next((turn.start for turn in self.turns if turn.stop in called), None)

    def calls_in(self, turn: Turn) -> tuple[ToolCall, ...]:
        """Return the calls of a turn, in order."""
        return tuple(call for call in self.tool_calls if call.start == turn.stop)

    def user_messages_after(self, turn: Turn) -> tuple[str, ...]:
        """Return the texts of the user messages between a turn and the next one."""
        return tuple(message.text for message in self.user_messages if message.start == turn.stop)


@dataclass(frozen=True, slots=True)
class Group:
    """The trajectories of one prompt, which are compared with each other.

    Attributes:
        prompt: Common prompt.
        trajectories: One trajectory for each episode, in the order of their samples. Branches share its grade.
        max_response_tokens: Token limit of the responses.
        grades: Sums of the rubric's parts before this one, one for each trajectory. Empty outside a rubric.
    """

    prompt: Prompt
    trajectories: tuple[Trajectory, ...]
    max_response_tokens: int
    grades: tuple["Grade", ...] = ()


@dataclass(frozen=True, slots=True)
class Grade:
    """The grade of one trajectory.

    Attributes:
        reward: Reward at the last sampled token.
        correct: Whether the answer is correct.
        answer: Answer that was compared with the reference, or None without an answer.
        failure: "timeout" or "error" if the grader failed, in which case the answer counts as wrong.
        parts: Parts of the reward by name, whose sum is `reward`. Each part is logged.
        turn_rewards: Additional rewards at the last token of each turn: one for every turn, or none.
        valid_format: Whether the response has the format that the reward requires, if it requires one.
    """

    reward: float
    correct: bool = False
    answer: str | None = None
    failure: str | None = None
    parts: Mapping[str, float] = field(default_factory=dict, hash=False)
    turn_rewards: tuple[float, ...] = ()
    valid_format: bool = True

    @property
    def credited(self) -> bool:
        """Whether the answer is rewarded as correct: correct, and in a valid format."""
        return self.correct and self.valid_format

    @property
    def total(self) -> float:
        """Sum of the reward and all turn rewards."""
        return self.reward + sum(self.turn_rewards)


@dataclass(frozen=True, slots=True)
class ScoredTrajectory:
    """A trajectory with its grade and the reward used for training.

    Attributes:
        trajectory: Trajectory.
        grade: Its grade.
        reward: Reward at the last sampled token, as used for training.
    """

    trajectory: Trajectory
    grade: Grade
    reward: float

    @property
    def total(self) -> float:
        """Sum of the reward used for training and all turn rewards."""
        return self.reward + sum(self.grade.turn_rewards)

    @property
    def episode_trajectories(self) -> tuple["ScoredTrajectory", ...]:
        """All trajectories of the episode with its reward. Turn rewards belong to the last trajectory."""
        grade = replace(self.grade, turn_rewards=())
        return (*(ScoredTrajectory(branch, grade, self.reward) for branch in self.trajectory.branches), self)


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """The scored trajectories of one prompt.

    Attributes:
        prompt: Common prompt.
        members: Scored trajectories.
    """

    prompt: Prompt
    members: tuple[ScoredTrajectory, ...]

    @property
    def id(self) -> str:
        """Name of the group: "step/problem"."""
        return self.members[0].trajectory.group_id

    @property
    def accuracy(self) -> float:
        """Fraction of the members with a correct answer, in any format."""
        return sum(member.grade.correct for member in self.members) / len(self.members)

    @property
    def credited_fraction(self) -> float:
        """Fraction of the members whose answer is rewarded as correct."""
        return sum(member.grade.credited for member in self.members) / len(self.members)

    @property
    def has_zero_variance(self) -> bool:
        """Whether all members have the same total reward. False for a group of one.

        All advantages of such a group are 0, so that nothing is learned from it. DAPO's dynamic sampling replaces it.
        """
        return len(self.members) > 1 and len({member.total for member in self.members}) == 1


# --- learning ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """The learner's view of a trajectory: tokens, mask and annotations, without any knowledge of tools.

    All arrays have one entry for each token of prompt and response. On prompts and observations, the mask is False and
    the other arrays are 0. An array is None before it is computed, or if the algorithm does not need it.

    Attributes:
        token_ids: Tokens of prompt and response.
        loss_mask: True for sampled tokens that enter the loss.
        rollout_logprobs: Log-probabilities according to the engine.
        advantages: Advantages.
        old_logprobs: Log-probabilities according to the learner, before the first update of the step.
        token_rewards: Rewards of single tokens, in addition to the reward at the end.
        ref_logprobs: Log-probabilities according to the reference model.
        entropies: Entropies of the learner's policy, before the first update of the step.
        collision_probs: Sums of the squared probabilities of all tokens, according to the learner's policy, before the
            first update of the step: the probability that two samples are equal.
        batch_values: Values of a policy loss that depend on the whole batch (`requires(batch_values=...)`).
        values: Values according to the critic, before the first update of the step.
        returns: Value targets of the critic.
        episode: Number of the episode, equal for all of its samples. None for an episode with a single sample.
        policy_versions: Versions of the policy that sampled the tokens; -1 for tokens that were not sampled.
        imitation_weights: Weights of the cross-entropy of each token, at least 0. Unlike the other arrays, they may be
            above 0 on prompts and observations, and None stands for zeros.
        reference_sample: The same response after another prompt, for the reference model. None for the same prompt.
    """

    token_ids: Int32Array
    loss_mask: BoolArray
    rollout_logprobs: Float32Array
    advantages: Float32Array | None = None
    old_logprobs: Float32Array | None = None
    token_rewards: Float32Array | None = None
    ref_logprobs: Float32Array | None = None
    values: Float32Array | None = None
    returns: Float32Array | None = None
    episode: int | None = None
    policy_versions: Int32Array | None = None
    imitation_weights: Float32Array | None = None
    entropies: Float32Array | None = None
    collision_probs: Float32Array | None = None
    batch_values: Float32Array | None = None
    reference_sample: "TrainingSample | None" = None

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class UpdateNumbers:
    """The learner's numbers of a trajectory's tokens in an optimizer step.

    Attributes:
        update: Number of the mini-batch in its training step, from 0.
        arrays: Arrays (K,) over the tokens with a loss, by name: "learner_logprobs" and "entropies" before the
            optimizer step, "advantages", and if they exist "old_logprobs" (before the first optimizer step of the
            training step), "call_logprobs" (of the token that opens a call at each position, before the
            first optimizer step), "importance_weights" (of the importance correction) and "clipped" (1 if clipping
            removes the token's gradient, or clips its weight).
    """

    update: int
    arrays: Mapping[str, Float32Array]
