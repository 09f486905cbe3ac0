"""The transcript of an episode, and the sampler of its turns."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torl._core import Scan, Scanner, TrajectoryBuilder, Vocabulary
from torl.base.errors import EngineError
from torl.base.seeds import derive_seed
from torl.base.types import (
    FinishReason,
    Outcome,
    Prompt,
    SampledTurn,
    SamplingParameters,
    StopReason,
    ToolCall,
    ToolRequest,
    Trajectory,
    Turn,
    TurnFinish,
    TurnRequest,
    UserMessage,
)
from torl.components.engine import Engine
from torl.components.formats import Format
from torl.components.formats.format import turn_stop_condition
from torl.components.text.vocabulary import read_turn
from torl.rollout.calls import CallCounters
from torl.run.config import RolloutConfig
from torl.run.records.row_types import shorten_outcome


@dataclass(slots=True)
class EpisodeCounters:
    """Counts over all episodes of a player that no trajectory records."""

    started: int = 0
    dropped_tokens: int = 0
    """Tokens sampled after the end of their turn."""
    calls_without_request: int = 0
    calls: CallCounters = field(default_factory=CallCounters)


@dataclass(frozen=True, slots=True)
class EpisodeId:
    """The identity of an episode in a run."""

    batch_id: int | str
    """Number of a training step, or name of an evaluation."""
    problem: str
    sample: int
    number: int
    """Number among all episodes of the player."""
    start_version: int
    """Version of the engine's policy at its start."""

    @property
    def group(self) -> str:
        """Name of the group."""
        return f"{self.batch_id}/{self.problem}"

    def turn(self, number: int) -> tuple[int | str, ...]:
        """The components of a turn's name, from which its seed is derived."""
        return (self.batch_id, self.problem, self.sample, number)


@dataclass(frozen=True, slots=True)
class ScannedTurn:
    """A sampled turn and its end."""

    sampled: SampledTurn
    scan: Scan
    turn: Turn
    """The turn as if it were the first of its response."""
    has_end_token: bool
    """Whether the last token is an end token of the format."""

    @property
    def overshoot(self) -> bytes:
        """Bytes of the last token after the end of the turn."""
        return self.scan.overshoot or b""

    @property
    def is_closed(self) -> bool:
        """Whether an end token closed the turn, so that a reply can follow."""
        return self.has_end_token and self.scan.stop is None

    @property
    def may_call(self) -> bool:
        """Whether the turn ended at a position where calls are made."""
        return self.is_closed or (self.scan.overshoot is not None and self.scan.stop is None)


@dataclass(slots=True, kw_only=True)
class TurnSampler:
    """Samples the turns of a run's episodes."""

    engine: Engine
    vocabulary: Vocabulary
    format: Format
    settings: RolloutConfig
    seed: int = 0
    """Seed of the run."""
    counters: EpisodeCounters = field(default_factory=EpisodeCounters)
    end_token_ids: frozenset[int] = frozenset()
    """The format's end tokens. The engine ends turns at them."""

    async def sample(
        self,
        episode: EpisodeId,
        number: int,
        prefix: Sequence[int],
        *,
        max_tokens: int,
        at_line_start: bool,
        calls_left: bool = True,
        stop: Sequence[str] = (),
        on_block: Callable[[str], None] | None = None,
    ) -> ScannedTurn:
        """Sample a turn after a prefix.

        Args:
            episode: The episode.
            number: Number of the turn in the episode.
            prefix: All tokens before the turn.
            max_tokens: Maximum length of the turn.
            at_line_start: Whether the text of `prefix` is empty or ends with a newline.
            calls_left: Whether a call may end the turn.
            stop: Stop sequences, in addition to the run's.
            on_block: Callback with the code of blocks that close while the turn continues.

        Raises:
            EngineError: The engine failed, or sampled with weights that are not finite.
        """
        settings, name = self.settings, episode.turn(number)
        end = turn_stop_condition(self.format, (*settings.stop, *stop), calls_left=calls_left)
        seed = derive_seed(self.seed, *name)
        sampling = SamplingParameters(max_tokens, settings.temperature, settings.top_p, seed)
        # Episodes of one name, and with it one seed, may be sampled at once: with other numbers of calls, for example.
        id = f"{episode.number}:{'/'.join(map(str, name))}"
        request = TurnRequest(
            id,
            prefix,
            sampling,
            end,
            at_line_start,
            episode=episode.number,
            group=episode.group,
            start_version=episode.start_version,
        )
        sampled = await self.engine.sample(request, on_block)
        if not all(map(math.isfinite, sampled.logprobs)):
            version = sampled.policy_versions[0][0]
            raise EngineError(f"the engine's log-probabilities of policy version {version} are not finite")
        # The engine ended the turn; the scanner finds its exact end and its blocks.
        scan = Scanner(self.vocabulary, end, at_line_start).feed(sampled.token_ids)
        self.counters.dropped_tokens += len(sampled.token_ids) - scan.consumed
        kept = sampled.token_ids[: scan.consumed]
        turn = read_turn(self.vocabulary, kept, scan, 0, _stop_reason(sampled, scan), sampled.cached_tokens)
        turn = replace(turn, replica=sampled.replica)
        return ScannedTurn(sampled, scan, turn, kept[-1] in self.end_token_ids)


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """A call with its outcome."""

    request: ToolRequest | None
    """None if nothing ran."""
    outcome: Outcome
    wait_seconds: float


@dataclass(slots=True)
class Transcript:
    """A growing token sequence of an episode: a prompt, then turns and observations."""

    prompt: Prompt
    builder: TrajectoryBuilder = field(init=False)
    turns: list[Turn] = field(default_factory=list)
    tool_calls: list[ToolCall] = field(default_factory=list)
    user_messages: list[UserMessage] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.builder = TrajectoryBuilder(self.prompt.token_ids)

    def __len__(self) -> int:
        """Number of response tokens."""
        return len(self.builder)

    def append_turn(self, scanned: ScannedTurn, *, is_call: bool) -> Turn:
        """Append the tokens of a turn up to its end; return the turn at its position."""
        start, sampled = len(self.builder), scanned.sampled
        for part, version in _spans(sampled, scanned.scan.consumed):
            self.builder.append_sampled(sampled.token_ids[part], sampled.logprobs[part], version)
        stop_reason = StopReason.CALL if is_call else scanned.turn.stop_reason
        turn = replace(scanned.turn, start=start, stop=len(self.builder), stop_reason=stop_reason)
        self.turns.append(turn)
        return turn

    def append_observation(
        self, token_ids: Sequence[int], text: str, calls: Sequence[AnsweredCall], user_messages: Sequence[str]
    ) -> None:
        """Append the observation after a turn: the outcomes of its calls and messages of the user.

        Args:
            token_ids: Tokens of the observation.
            text: Text of the observation.
            calls: The calls of the turn that it answers.
            user_messages: The messages that it contains.
        """
        start, stop = self.builder.append_observation(token_ids)
        # The observation contains what the model sees. Whole outputs would stay in memory until the step is recorded.
        self.tool_calls += [
            ToolCall(call.request, shorten_outcome(call.outcome), text, start, stop, call.wait_seconds)
            for call in calls
        ]
        self.user_messages += [UserMessage(message, text, start, stop) for message in user_messages]

    def trajectory(
        self,
        episode: EpisodeId,
        sampler: TurnSampler,
        finish_reason: FinishReason,
        seconds: float,
        *,
        answer: str | None = None,
        environment_rewards: Mapping[str, float] | None = None,
    ) -> Trajectory:
        """The finished trajectory."""
        builder = self.builder
        return Trajectory(
            prompt=self.prompt,
            group_id=episode.group,
            sample_index=episode.sample,
            token_ids_T=builder.token_ids,
            loss_mask_T=builder.loss_mask,
            rollout_logprobs_T=builder.rollout_logprobs,
            policy_versions_T=builder.policy_versions,
            turns=tuple(self.turns),
            tool_calls=tuple(self.tool_calls),
            finish_reason=finish_reason,
            text=sampler.vocabulary.decode(builder.token_ids.tolist()),
            seconds=seconds,
            format=sampler.format.name,
            answer=answer,
            user_messages=tuple(self.user_messages),
            environment_rewards=environment_rewards or {},
        )


def ends_line(vocabulary: Vocabulary, token_ids: Sequence[int]) -> bool:
    """Whether the text of `token_ids` ends with a newline, or is empty."""
    for token_id in reversed(token_ids):
        if piece := vocabulary.decode_bytes([token_id]):
            return piece.endswith(b"\n")
    return True


def _spans(sampled: SampledTurn, kept: int) -> list[tuple[slice, int]]:
    """The parts of a turn's first `kept` tokens that one policy sampled, each with its version."""
    firsts = [first for _, first in sampled.policy_versions]
    stops = [*firsts[1:], len(sampled.token_ids)]
    spans = zip(sampled.policy_versions, stops, strict=True)
    return [(slice(first, min(stop, kept)), version) for (version, first), stop in spans if first < kept]


def _stop_reason(sampled: SampledTurn, scan: Scan) -> StopReason:
    """The stop reason of a turn, before its format looks for calls."""
    if scan.overshoot is not None:
        return StopReason.STOP
    if sampled.finish_reason == TurnFinish.END:
        raise RuntimeError(f"the engine returned finish_reason = {sampled.finish_reason!r} for an unfinished turn")
    return StopReason(sampled.finish_reason)
