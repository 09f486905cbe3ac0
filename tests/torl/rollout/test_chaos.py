"""Real episodes while everything happens at once: nothing is lost, nothing is doubled, and all lines up."""

import asyncio
import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import play_trajectories, player
from engine_checks import transformers_logprobs
from engine_records import EngineRecord, check_against_engine, recorded
from engines import make_engine
from torl.base.types import Prompt, Trajectory
from torl.components.formats import Format
from torl.recipes.torl import ToRLFormat
from torl.recipes.zerotir import ZeroTIRFormat, ZeroTIROptions
from torl.rollout.episode import EpisodePlayer
from torl_sandbox import SandboxPool
from weight_sending import perturbed, sending

CALLS = 16


async def disturb(
    engine: Any,
    pool: SandboxPool,
    playing: EpisodePlayer,
    prompts: list[Prompt],
    models: list[Path],
    scratch: Path,
    others: list[asyncio.Future[list[Trajectory]]],
) -> None:
    """Until cancelled: new weights in flight, workers that die, rollouts (`others`) that are cancelled."""
    source, version = random.Random(3), engine.policy_version
    while True:
        version += 1
        async with sending(models[version % 2], scratch) as (rendezvous, process):
            await engine.receive_weights(rendezvous, version)
            assert await process.wait() == 0
        os.kill(source.choice(pool.processes()), signal.SIGKILL)
        others.append(asyncio.ensure_future(play_trajectories(playing, prompts[:4], f"given up {version}", samples=8)))
        await asyncio.sleep(source.uniform(0.05, 0.5))
        others[-1].cancel()
        await asyncio.gather(others[-1], return_exceptions=True)


@pytest.mark.parametrize(
    ("name", "samples"),
    [
        pytest.param("zerotir", 4, id="zerotir, 64 episodes"),
        pytest.param("zerotir", 200, id="zerotir, 3200 episodes", marks=pytest.mark.slow),
        pytest.param("torl", 200, id="torl, 3200 episodes", marks=pytest.mark.slow),
    ],
)
async def test_record_is_consistent_for_any_events(
    tiny_model_directory, vocabulary, encoder, prompts, tmp_path, name: str, samples: int
) -> None:
    models = [tiny_model_directory, perturbed(tiny_model_directory, tmp_path / "changed")]
    form: Format = ToRLFormat() if name == "torl" else ZeroTIRFormat(ZeroTIROptions(error_style="last_line"))
    engine = make_engine(tiny_model_directory, tmp_path / "engine.log")
    await engine.start()
    try:
        with SandboxPool(2, result_cache_bytes=0) as pool, recorded(engine) as record:
            playing = player(
                engine,
                pool,
                form=form,
                limit=400,
                state="episode",
                in_flight=96,
                vocabulary=vocabulary,
                encoder=encoder,
                max_tool_calls=CALLS,
                seed=11,
            )
            others: list[asyncio.Future[list[Trajectory]]] = []
            trouble = asyncio.ensure_future(disturb(engine, pool, playing, prompts, models, tmp_path, others))
            trajectories = await play_trajectories(playing, prompts, "chaos", samples)
            while engine.policy_version < 2 and not trouble.done():  # all had ended before anything had happened
                trajectories += await play_trajectories(playing, prompts, f"more chaos {len(trajectories)}", samples)
            trouble.cancel()
            with pytest.raises(asyncio.CancelledError):
                await trouble
            for other in others:  # the last may not have been cancelled yet
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            assert pool.stats()["workers_replaced"] > 0
            # A run that was cancelled while its code computed is ended later, without its caller, within some 50 ms
            # on a quiet machine.
            async with asyncio.timeout(60):
                while pool.stats()["queued"] or pool.stats()["running"]:
                    await asyncio.sleep(0.01)
        assert engine.live_requests == engine._llm.get_num_unfinished_requests() == 0
    finally:
        await engine.close()
    check(trajectories, record, models, len(prompts) * samples)


def check(trajectories: list[Trajectory], record: EngineRecord, models: list[Path], count: int) -> None:
    names = Counter((trajectory.group_id, trajectory.sample_index) for trajectory in trajectories)
    assert len(trajectories) % count == 0
    assert set(names.values()) == {1}
    spanning, gaps = 0, []
    for number, trajectory in enumerate(trajectories):
        check_against_engine(trajectory, record)
        versions = trajectory.policy_versions_T[trajectory.loss_mask_T]
        assert (np.diff(versions) >= 0).all()
        spanning += len(np.unique(versions)) > 1
        if number % 8 and len(np.unique(versions)) == 1:
            continue
        ids = trajectory.token_ids_T.tolist()
        for version in np.unique(versions):
            own = trajectory.policy_versions_T == version
            logprobs = transformers_logprobs(models[version % 2], trajectory.prompt.token_ids, ids)
            gaps.append(np.abs(logprobs - trajectory.rollout_logprobs_T)[own].max())
    assert np.mean(gaps) < 1e-5
    assert max(gaps) < 1e-4  # other weights, or keys of other weights, are off by a hundred times that
    assert spanning > 0
    assert max(len(trajectory.tool_calls) for trajectory in trajectories) > 3
