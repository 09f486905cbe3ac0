"""Hundreds of episodes at once through the real engine and the real sandbox; stopped in the middle, too."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from builders import play_trajectories, player
from engines import make_engine
from torl.base.errors import SandboxError
from torl.base.types import Problem
from torl.rollout.episode import EpisodePlayer
from torl.rollout.scheduler import play_groups
from torl_sandbox import SandboxPool

SAMPLES = 16


@pytest.fixture
def sandbox() -> Iterator[SandboxPool]:
    with SandboxPool(workers=2) as pool:
        yield pool


@pytest.fixture
def playing(engine, sandbox, vocabulary, encoder) -> EpisodePlayer:
    return player(engine, sandbox, vocabulary=vocabulary, encoder=encoder, max_tool_calls=3, seed=1)


def nothing_is_left(engine: Any, sandbox: SandboxPool) -> bool:
    stats = sandbox.stats()
    return engine.live_requests == engine._llm.get_num_unfinished_requests() == stats["queued"] == stats["running"] == 0


async def test_256_episodes(playing, prompts, engine, sandbox) -> None:
    trajectories = await play_trajectories(playing, prompts, "many", SAMPLES)
    assert len(trajectories) == 256
    assert len({(trajectory.group_id, trajectory.sample_index) for trajectory in trajectories}) == 256
    calls = [call for trajectory in trajectories for call in trajectory.tool_calls]
    ran = [call for call in calls if call.ran]
    assert len(ran) > 200
    for call in ran:
        if call.code.startswith("print(") and call.outcome.ok:
            assert call.outcome.text == f"{eval(call.code[5:])}\n"
    assert {call.outcome.error for call in ran} >= {None, "NameError"}
    for trajectory in trajectories:
        assert trajectory.loss_mask_T.sum() == sum(turn.stop - turn.start for turn in trajectory.turns)
        observed = np.zeros(len(trajectory), dtype=bool)
        for call in trajectory.tool_calls:
            observed[call.start : call.stop] = True
        assert np.array_equal(observed, ~trajectory.loss_mask_T)
    assert nothing_is_left(engine, sandbox)


async def test_stopped_in_the_middle(playing, prompts, engine, sandbox) -> None:
    before = asyncio.all_tasks()
    started = asyncio.Event()

    async def play_until_stopped() -> None:
        groups = play_groups(playing, prompts, batch_id="stopped", samples_per_prompt=SAMPLES, on_episode=started.set)
        async with aclosing(groups):
            async for _ in groups:
                pass

    task = asyncio.ensure_future(play_until_stopped())
    await started.wait()  # the first has ended
    assert engine.live_requests > 50
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before
    assert nothing_is_left(engine, sandbox)
    assert len(await play_trajectories(playing, prompts[:1], "after", SAMPLES)) == 16


async def test_a_sandbox_that_dies_stops_the_rollout(playing, prompts, engine, sandbox) -> None:
    task = asyncio.ensure_future(play_trajectories(playing, prompts, "dead sandbox", SAMPLES))
    await asyncio.sleep(0.1)
    sandbox.close()
    with pytest.raises(SandboxError):
        await task
    assert engine.live_requests == engine._llm.get_num_unfinished_requests() == 0


def resident_mib(pids: list[int]) -> float:
    """Memory of processes together, shared pages counted in each."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.slow
async def test_a_thousand_episodes_for_ten_minutes(
    tiny_model_directory, vocabulary, encoder, prompts, tmp_path
) -> None:
    """At any time a thousand are under way, some waiting for their tool; no process grows."""
    engine = make_engine(tiny_model_directory, tmp_path / "engine.log", max_sequences=1024)
    await engine.start()
    played, under_way, memory = 0, [], []
    end = time.monotonic() + 600
    try:
        with SandboxPool(workers=2) as pool:
            playing = player(
                engine,
                pool,
                in_flight=1000,
                vocabulary=vocabulary,
                encoder=encoder,
                max_tool_calls=16,
                seed=1,
            )
            endless = [
                replace(prompt, problem=Problem(f"{number}-{prompt.problem.id}", "", "1"))
                for number, prompt in enumerate(prompts * 2000)
            ]
            groups = play_groups(playing, endless, batch_id="endless", samples_per_prompt=SAMPLES)
            async with aclosing(groups):
                async for group in groups:
                    played += len(group.trajectories)
                    if time.monotonic() > end:
                        break
                    if played % 4096 == 0:
                        under_way.append(playing.counters.started - played)
                        processes = [os.getpid(), *(process.pid for process in engine.processes)]
                        memory.append(resident_mib([*processes, *pool.processes()]))
        assert engine.live_requests == 0
    finally:
        await engine.close()
    print(f"{played} episodes; {min(under_way)} to {max(under_way)} under way; MiB: {[round(size) for size in memory]}")
    assert played > 20_000
    assert min(under_way) >= 1000
    quarter = len(memory) // 4
    assert fmean(memory[-quarter:]) < fmean(memory[quarter : 2 * quarter]) + 32
