"""One episode: a prompt is played to its end, sampled tokens and observations in one record."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torl._core import TrajectoryBuilder, Vocabulary
from torl.config import RolloutConfig
from torl.reward.answers import find_answer
from torl.rollout.engine import Engine
from torl.rollout.formats import NO_CODE, Format
from torl.rollout.seeds import derive_seed
from torl.rollout.slots import EpisodeSlots
from torl.rollout.tokenizer import TextEncoder
from torl.rollout.tool import Tool, ToolCounters
from torl.types import FinishReason, InterpreterState, Prompt, SamplingParameters, ToolCall, Trajectory, Turn

if TYPE_CHECKING:
    from torl.sandbox import Interpreter


@dataclass(frozen=True, slots=True)
class EpisodeSettings:
    """The numbers of an episode that are not the format's."""

    max_response_tokens: int  # sampled and observed together
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0  # of the run
    end_at_void_turn: bool = False
    interpreter_state: InterpreterState = "fresh"
    speculative_execution: bool = True

    @classmethod
    def from_config(cls, config: RolloutConfig, seed: int, temperature: float | None = None) -> "EpisodeSettings":
        """The settings of a run; an evaluation may have its own temperature."""
        chosen = config.temperature if temperature is None else temperature
        return cls(
            max_response_tokens=config.max_response_tokens,
            temperature=chosen,
            top_p=config.top_p,
            seed=seed,
            end_at_void_turn=config.end_at_void_turn,
            interpreter_state=config.interpreter_state,
            speculative_execution=config.speculative_execution,
        )


@dataclass(slots=True)
class EpisodeCounters:
    """What happened in all episodes of a player, and is in no trajectory."""

    started: int = 0
    dropped_tokens: int = 0  # sampled after what ends a turn: thrown away
    calls_without_code: int = 0
    tool: ToolCounters = field(default_factory=ToolCounters)


@dataclass(slots=True)
class EpisodePlayer:
    """Everything an episode needs besides its prompt. One player plays any number of episodes at once."""

    engine: Engine
    interpreter: "Interpreter"
    vocabulary: Vocabulary
    encoder: TextEncoder
    format: Format
    settings: EpisodeSettings
    slots: EpisodeSlots = field(default_factory=EpisodeSlots)
    counters: EpisodeCounters = field(default_factory=EpisodeCounters)

    async def play(self, prompt: Prompt, *, step: int | str, sample: int) -> Trajectory:
        """Play one episode: sample, run what is asked for, put in what came out, sample on, until it ends.

        `step` and `sample` name the episode: its group is "step/problem", and its seeds are made from them. The
        trajectory holds what the engine sampled, token for token: nothing is decoded and encoded again.

        Raises:
            EngineError, SandboxError: the host is broken. What the model does wrong never raises.
        """
        episode = _Episode(self, prompt, step, sample)
        try:
            return await episode.play()
        finally:
            await episode.tool.close()


class _Episode:
    """The state of one episode while it is played."""

    def __init__(self, player: EpisodePlayer, prompt: Prompt, step: int | str, sample: int) -> None:
        self.player = player
        self.prompt = prompt
        self.step = step
        self.sample = sample
        self.builder = TrajectoryBuilder(prompt.token_ids)
        self.cached_tokens: list[int] = []
        self.tool_calls: list[ToolCall] = []
        self.at_line_start = _ends_line(player.vocabulary, prompt.token_ids)
        self.number = player.counters.started
        player.counters.started += 1
        settings = player.settings
        # One seed for all samples of a problem, so that equal snippets have equal outcomes.
        seed = derive_seed(settings.seed, step, prompt.problem.id)
        self.tool = Tool(player.interpreter, settings.interpreter_state, seed=seed, counters=player.counters.tool)

    async def play(self) -> Trajectory:
        start = time.perf_counter()
        while True:
            ended, call = await self._sample_turn()
            if ended is None and call[0] is None and self.player.settings.end_at_void_turn and not self._has_answer():
                ended = FinishReason.VOID
            if ended is None and self._remaining() > 0:
                await self._call_tool(*call)
            if ended is None and self._remaining() == 0:
                ended = FinishReason.LENGTH
            if ended is not None:
                return self._trajectory(ended, time.perf_counter() - start)

    async def _sample_turn(self) -> tuple[FinishReason | None, tuple[str | None, bytes]]:
        """One generation. Returns why the episode ended, or None and the call: (code, overshoot)."""
        player, turn = self.player, len(self.cached_tokens)
        end = player.format.turn_end(len(self.tool_calls), self.at_line_start)
        sampling = SamplingParameters(
            max_tokens=self._remaining(),
            temperature=player.settings.temperature,
            top_p=player.settings.top_p,
            seed=derive_seed(player.settings.seed, self.step, self.prompt.problem.id, self.sample, turn),
        )
        sampled = await player.engine.sample(
            self.builder.context(),
            sampling,
            f"{self.step}/{self.prompt.problem.id}/{self.sample}/{turn}",
            end=end,
            episode=self.number,
            on_block=self.tool.start if end is not None and player.settings.speculative_execution else None,
        )
        # The engine ended the turn; where exactly is read off the tokens.
        scan = None if end is None else end.scanner(player.vocabulary).feed(sampled.token_ids)
        kept = len(sampled.token_ids) if scan is None else scan.consumed
        starts = [start for _, start in sampled.policy_versions]
        for (version, start), stop in zip(sampled.policy_versions, [*starts[1:], kept], strict=True):
            if start < kept:
                part = slice(start, min(stop, kept))
                self.builder.append_sampled(sampled.token_ids[part], sampled.logprobs[part], version)
        self.cached_tokens.append(sampled.cached_tokens)
        if scan is not None and scan.overshoot is not None:
            player.counters.dropped_tokens += len(sampled.token_ids) - kept
            return None, (player.format.choose([block.code for block in scan.blocks]), scan.overshoot)
        if sampled.finish_reason == "end":
            raise RuntimeError("the engine ended a turn that is not at its end")
        return FinishReason(sampled.finish_reason), (None, b"")

    async def _call_tool(self, code: str | None, overshoot: bytes) -> None:
        """Run the code of the turn that just ended and splice its observation, cut at the response limit."""
        player = self.player
        start = time.perf_counter()
        if code is None:
            player.counters.calls_without_code += 1
            outcome = NO_CODE
        else:
            with player.slots.waiting():
                outcome = await self.tool.call(code)
        wait_seconds = time.perf_counter() - start
        observation = player.format.answer(outcome, overshoot)
        token_ids = player.encoder.encode(observation)[: self._remaining()]
        first, last = self.builder.append_observation(token_ids)
        self.tool_calls.append(ToolCall(code or "", outcome, observation, first, last, wait_seconds))
        self.at_line_start = observation.endswith("\n")

    def _has_answer(self) -> bool:
        """Whether the turn that just ended holds a boxed answer."""
        start, stop = self.builder.turns[-1]
        return find_answer(self.player.vocabulary.decode(self.builder.token_ids[start:stop].tolist())) is not None

    def _remaining(self) -> int:
        return self.player.settings.max_response_tokens - len(self.builder)

    def _trajectory(self, finish_reason: FinishReason, seconds: float) -> Trajectory:
        builder, decode = self.builder, self.player.vocabulary.decode
        token_ids = builder.token_ids
        turns = [
            Turn(start, stop, cached) for (start, stop), cached in zip(builder.turns, self.cached_tokens, strict=True)
        ]
        return Trajectory(
            prompt=self.prompt,
            group=f"{self.step}/{self.prompt.problem.id}",
            sample=self.sample,
            token_ids_T=token_ids,
            loss_mask_T=builder.loss_mask,
            rollout_logprobs_T=builder.rollout_logprobs,
            policy_versions_T=builder.policy_versions,
            turns=tuple(turns),
            tool_calls=tuple(self.tool_calls),
            finish_reason=finish_reason,
            text=decode(token_ids.tolist()),
            sampled_text="\n".join(decode(token_ids[turn.start : turn.stop].tolist()) for turn in turns),
            seconds=seconds,
            format=self.player.format.name,
        )


def _ends_line(vocabulary: Vocabulary, token_ids: Sequence[int]) -> bool:
    """Whether the text of `token_ids` ends with a newline, or is empty."""
    for token_id in reversed(token_ids):
        if piece := vocabulary.decode_bytes([token_id]):
            return piece.endswith(b"\n")
    return True
