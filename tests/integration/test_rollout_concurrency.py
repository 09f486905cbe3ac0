"""Hundreds of episodes at once through the real engine and the real sandbox; stopped in the middle, too."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

from torl.errors import SandboxError
from torl.rollout.episode import EpisodePlayer, EpisodeSettings
from torl.rollout.formats import ToRLFormat
from torl.rollout.scheduler import play_groups
from torl.sandbox import SandboxPool
from torl.types import Prompt, Trajectory


@pytest.fixture
def sandbox() -> Iterator[SandboxPool]:
    with SandboxPool(workers=2) as pool:
        yield pool


@pytest.fixture
def player(engine, sandbox, vocabulary, encoder) -> EpisodePlayer:
    return EpisodePlayer(engine, sandbox, vocabulary, encoder, ToRLFormat(3), EpisodeSettings(200, seed=1))


async def play(player: EpisodePlayer, prompts: list[Prompt], step: str, on_episode: Any = None) -> list[Trajectory]:
    groups = play_groups(player, prompts, step=step, samples_per_prompt=16, on_episode=on_episode)
    async with aclosing(groups):
        return [trajectory async for group in groups for trajectory in group]


def nothing_is_left(engine: Any, sandbox: SandboxPool) -> bool:
    stats = sandbox.stats()
    return engine.live_requests == engine._llm.get_num_unfinished_requests() == stats["queued"] == stats["running"] == 0


async def test_256_episodes(player, prompts, engine, sandbox) -> None:
    trajectories = await play(player, prompts, "many")
    assert len(trajectories) == 256
    assert len({(trajectory.group, trajectory.sample) for trajectory in trajectories}) == 256
    calls = [call for trajectory in trajectories for call in trajectory.tool_calls]
    ran = [call for call in calls if call.code]
    assert len(ran) > 200
    for call in ran:
        if call.code.startswith("print(") and call.outcome.ok:
            assert call.outcome.stdout == f"{eval(call.code[5:])}\n"
    assert {call.outcome.exception_type for call in ran} >= {None, "NameError"}
    for trajectory in trajectories:
        assert trajectory.loss_mask_T.sum() == sum(turn.stop - turn.start for turn in trajectory.turns)
        observed = np.zeros(len(trajectory), dtype=bool)
        for call in trajectory.tool_calls:
            observed[call.start : call.stop] = True
        assert np.array_equal(observed, ~trajectory.loss_mask_T)
    assert nothing_is_left(engine, sandbox)


async def test_stopped_in_the_middle(player, prompts, engine, sandbox) -> None:
    before = asyncio.all_tasks()
    begun = asyncio.Event()
    task = asyncio.ensure_future(play(player, prompts, "stopped", on_episode=lambda _: begun.set()))
    await begun.wait()  # the first has ended
    assert engine.live_requests > 50
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before
    assert nothing_is_left(engine, sandbox)
    assert len(await play(player, prompts[:1], "after")) == 16


async def test_a_sandbox_that_dies_stops_the_rollout(player, prompts, engine, sandbox) -> None:
    task = asyncio.ensure_future(play(player, prompts, "dead sandbox"))
    await asyncio.sleep(0.1)
    sandbox.close()
    with pytest.raises(SandboxError):
        await task
    assert engine.live_requests == engine._llm.get_num_unfinished_requests() == 0
