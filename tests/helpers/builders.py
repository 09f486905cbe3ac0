"""Values of torl with short names and defaults, for tests that do not care about most of their fields.

A trajectory is described by its turns. Every turn but the last calls the tool, unless `calls` say otherwise:

    trajectory("```python\\nprint(1)\\n```\\n```output", "So \\\\boxed{1}.")
    trajectory(turn("hm ```output"), "\\\\boxed{1}", calls=[call(None)])
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scripted_engine import ENCODER, VOCABULARY
from torl._core import Vocabulary
from torl.base.types import (
    Block,
    FinishReason,
    Grade,
    Group,
    Outcome,
    OutcomeStatus,
    Problem,
    Prompt,
    ScoredGroup,
    ScoredTrajectory,
    StopReason,
    ToolCall,
    ToolRequest,
    Trajectory,
    Turn,
)
from torl.components.engine import Engine
from torl.components.formats import Format
from torl.components.text.tokenizer import PlainTextEncoder
from torl.components.tools import PythonOptions, PythonTool
from torl.components.tools.python import InterpreterState
from torl.recipes.torl import ToRLFormat
from torl.rollout.episode import EpisodePlayer
from torl.rollout.scheduler import play_groups
from torl.rollout.slots import EpisodeSlots
from torl.run.config import LearningConfig, RolloutConfig
from torl.run.records.run_directory import changed_keys, config_files
from torl_sandbox import Interpreter

_CLOSED_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ENDING = {
    FinishReason.STOP: StopReason.STOP,
    FinishReason.LENGTH: StopReason.LENGTH,
    FinishReason.VOID: StopReason.CALL,
}


# --- what a tool gave ---------------------------------------------------------------------------------------------


def printed(text: str = "1\n") -> Outcome:
    """A run that succeeded."""
    return Outcome(OutcomeStatus.OK, text)


def failed(
    text: str = "NameError: name 'x' is not defined",
    *,
    status: OutcomeStatus = OutcomeStatus.ERROR,
    traceback: str | None = None,
) -> Outcome:
    """A run that did not: an exception by its last line, or one of the limits."""
    error = text.partition(":")[0] if status is OutcomeStatus.ERROR else None
    return Outcome(status, text, error, {} if traceback is None else {"traceback": traceback})


def call(
    code: str | None = "print(1)",
    outcome: Outcome | None = None,
    *,
    tool: str = "python",
    observation: str | None = None,
    start: int = 0,
    stop: int = 0,
    wait_seconds: float = 0.0,
) -> ToolCall:
    """A call of this code; of none if it is None. `trajectory` puts the place of its observation in."""
    if outcome is None:
        outcome = printed() if code is not None else failed("NoCode: there was no complete ```python block to run")
    return ToolCall(
        request=None if code is None else ToolRequest(tool, {"code": code}),
        outcome=outcome,
        observation=f"\n{outcome.text.rstrip()}\n```\n" if observation is None else observation,
        start=start,
        stop=stop,
        wait_seconds=wait_seconds,
    )


# --- what was sampled ---------------------------------------------------------------------------------------------


def asked(
    problem: str = "p", answer: str = "1", *, question: str = "?", token_ids: Sequence[int] = (1, 2, 3)
) -> Prompt:
    """The prompt of a problem with this id and this reference answer."""
    return Prompt(Problem(problem, question, answer), tuple(token_ids))


def turn(
    text: str = "",
    *,
    stop_reason: StopReason = StopReason.STOP,
    blocks: Sequence[Block] | None = None,
    start: int = 0,
    stop: int = 0,
    cached_tokens: int = 0,
) -> Turn:
    """A turn. By default, its blocks are the closed ones whose first and last lines hold nothing else."""
    if blocks is None:
        blocks = [Block(found.group(1), found.start(1), found.end(1), 0) for found in _CLOSED_BLOCK.finditer(text)]
    return Turn(start, stop, text, stop_reason, tuple(blocks), cached_tokens)


def trajectory(
    *turns: str | Turn,
    prompt: Prompt | None = None,
    answer: str = "1",
    group: str | None = None,
    sample: int = 0,
    calls: Sequence[ToolCall] | None = None,
    tokens: Sequence[int] | None = None,
    turn_tokens: int = 1,
    observation_tokens: int = 2,
    version: int = 0,
    finish: FinishReason = FinishReason.STOP,
    seconds: float = 0.0,
    format: str = "torl",
) -> Trajectory:
    """A response of these turns; a text represents a turn, which ends with a call if there is one.

    Args:
        prompt: Prompt, `asked(answer=answer)` by default.
        answer: Reference.
        group: Group id, "0/<problem>" by default.
        calls: One call after each of the first turns; after each but the last by default.
        tokens: Sampled tokens, if they matter (of a single turn). Others are numbered.
        turn_tokens: Tokens of each turn.
        observation_tokens: Tokens of each observation.
        version: Policy version that sampled all of it.
    """
    prompt = prompt or asked(answer=answer)
    made_calls = [call() for _ in turns[1:]] if calls is None else list(calls)
    placed_turns: list[Turn] = []
    placed_calls: list[ToolCall] = []
    mask: list[bool] = []
    text = ""
    for index, given in enumerate(turns or ("",)):
        stop_reason = StopReason.CALL if index < len(made_calls) else _ENDING[finish]
        each = turn(given, stop_reason=stop_reason) if isinstance(given, str) else given
        start = len(mask)
        mask += [True] * (turn_tokens if tokens is None else len(tokens))
        placed_turns.append(replace(each, start=start, stop=len(mask)))
        text += each.text
        if index < len(made_calls):
            start = len(mask)
            mask += [False] * observation_tokens
            placed_calls.append(replace(made_calls[index], start=start, stop=len(mask)))
            text += made_calls[index].observation
    mask_T = np.array(mask, dtype=np.bool_)
    return Trajectory(
        prompt=prompt,
        group_id=f"0/{prompt.problem.id}" if group is None else group,
        sample_index=sample,
        token_ids_T=np.arange(len(mask), dtype=np.int32) if tokens is None else np.array(tokens, dtype=np.int32),
        loss_mask_T=mask_T,
        rollout_logprobs_T=np.where(mask_T, -1, 0).astype(np.float32),
        policy_versions_T=np.where(mask_T, version, -1).astype(np.int32),
        turns=tuple(placed_turns),
        tool_calls=tuple(placed_calls),
        finish_reason=finish,
        text=text,
        seconds=seconds,
        format=format,
    )


def group(*trajectories: Trajectory, max_response_tokens: int = 100) -> Group:
    """The trajectories of one prompt: that of the first."""
    return Group(trajectories[0].prompt, trajectories, max_response_tokens)


# --- what it is worth ---------------------------------------------------------------------------------------------


def grade(
    correct: bool = True,
    reward: float | None = None,
    *,
    answer: str | None = None,
    failure: str | None = None,
    parts: Mapping[str, float] | None = None,
    turn_rewards: Sequence[float] = (),
) -> Grade:
    """A grade; its reward is 1 or 0, as it is correct or not, unless it is given."""
    reward = float(correct) if reward is None else reward
    return Grade(reward, correct, answer, failure, parts or {}, tuple(turn_rewards))


def scored(
    played: Trajectory | None = None,
    correct: bool = True,
    reward: float | None = None,
    *,
    answer: str | None = None,
    failure: str | None = None,
    turn_rewards: Sequence[float] = (),
    valid_format: bool = True,
) -> ScoredTrajectory:
    """A trajectory with its grade; the learner receives the grade's reward."""
    given = grade(correct, reward, answer=answer, failure=failure, turn_rewards=turn_rewards)
    given = replace(given, valid_format=valid_format)
    return ScoredTrajectory(trajectory() if played is None else played, given, given.reward)


def scored_group(*members: ScoredTrajectory | bool) -> ScoredGroup:
    """Scored trajectories of one prompt; a bool stands for one that is correct or not."""
    scored_members = tuple(scored(correct=member) if isinstance(member, bool) else member for member in members)
    return ScoredGroup(scored_members[0].trajectory.prompt, scored_members)


# --- who plays ----------------------------------------------------------------------------------------------------


def player(
    engine: Engine,
    interpreter: Interpreter,
    *,
    form: Format | None = None,
    limit: int = 200,
    state: InterpreterState = "fresh",
    in_flight: int = 1024,
    vocabulary: Vocabulary = VOCABULARY,
    encoder: PlainTextEncoder = ENCODER,
    end_token_ids: frozenset[int] = frozenset(),
    seed: int = 0,
    **settings: Any,
) -> EpisodePlayer:
    """A player of ToRL's format, unless another is given, whose only tool is Python.

    Args:
        engine: Engine of the episodes.
        interpreter: Interpreter that runs the code.
        form: Format of the calls.
        limit: Maximum tokens of a response.
        state: State that a block finds of earlier ones.
        in_flight: Episodes sampled at once.
        vocabulary: Vocabulary of the engine's model; the scripted engine's by default.
        encoder: Encoder of the engine's model; the scripted engine's by default.
        end_token_ids: Ids of the format's end tokens.
        seed: Random seed of the run.
        settings: Other settings of `RolloutConfig`.
    """
    return EpisodePlayer(
        engine=engine,
        tools={"python": PythonTool(PythonOptions(interpreter_state=state), interpreter=interpreter)},
        vocabulary=vocabulary,
        encoder=encoder,
        format=form or ToRLFormat(),
        settings=RolloutConfig(max_response_tokens=limit, **settings),
        slots=EpisodeSlots(in_flight),
        end_token_ids=end_token_ids,
        seed=seed,
    )


async def play_all(playing: EpisodePlayer, prompts: Sequence[Prompt], series: int | str, samples: int) -> list[Group]:
    """The groups of these prompts, in the order in which they ended."""
    groups = play_groups(playing, prompts, batch_id=series, samples_per_prompt=samples)
    async with aclosing(groups):
        return [each async for each in groups]


async def play_trajectories(
    playing: EpisodePlayer, prompts: Sequence[Prompt], series: int | str, samples: int
) -> list[Trajectory]:
    """The trajectories of `play_all`."""
    return [each for played in await play_all(playing, prompts, series, samples) for each in played.trajectories]


def write_config(directory: Path, config: LearningConfig, first_step: int = 0) -> list[str]:
    """Write the configuration of a start, as a run does, and return its changes as lines."""
    changes = list(map(str, changed_keys(directory, config)))
    for path, data in config_files(directory, config, first_step).items():
        path.write_bytes(data)
    return changes
