"""Trajectories: everything that happened in an episode, token for token.

Axis suffix `_T`: the tokens of one trajectory's response, sampled and observed, without the prompt.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from torl.base.types.problems import Prompt
from torl.base.types.samples import BoolArray, Float32Array, Int32Array
from torl.base.types.turns import Outcome, ToolRequest

MEASURED: Final = MappingProxyType({"measured": True})
"""Metadata of a field that depends on the machine and its load, so that the same episode may have another value."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call in a trajectory. The calls of one turn share an observation.

    Attributes:
        request: Executed request. None if nothing was executed, because the call was malformed or above the limit.
        outcome: Outcome of the call. Its texts are truncated after 16,384 characters, as in records.
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
    wait_seconds: float = field(metadata=MEASURED)

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
    cached_tokens: int = field(metadata=MEASURED)
    replica: int = field(default=0, compare=False, metadata=MEASURED)


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
