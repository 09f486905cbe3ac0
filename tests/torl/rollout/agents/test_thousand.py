"""A thousand agent programs at once, on a scripted engine: what they ask is theirs, and nothing of them is left."""

import asyncio
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agent_programs import MODEL, agent_player, opened, turns, user
from builders import asked, play_all
from torl.base.types import Group, Problem
from torl.components.agents.programs import CommandAgent
from torl.rollout.slots import EpisodeSlots

pytestmark = pytest.mark.slow

SAMPLES = 8
SAID = "It is \\boxed{3}.<|im_end|>"
TURNS = 4


async def test_thousand_functions_play_without_waiting_for_slow_ones() -> None:
    running = most = 0
    slow: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    others_ended = asyncio.Event()

    async def play(problem: Problem, url: str) -> str | None:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        if running == 1000:
            everyone.set()
        await everyone.wait()
        if not slow.done():
            slow.set_result(problem.id)
            await others_ended.wait()
        messages: list[Any] = [user(problem.question)]
        async with aiohttp.ClientSession() as client:  # each has separate connections
            for _ in range(TURNS):
                async with client.post(f"{url}/chat/completions", json={"messages": messages}) as answer:
                    reply = await answer.json()
                messages += [reply["choices"][0]["message"], user("go on")]
        running -= 1
        if running == 1:
            others_ended.set()
        return None

    everyone = asyncio.Event()
    before = open_files()
    player = agent_player(MODEL, turns(SAID), play, limits={"max_concurrent": 1000})
    player.slots = EpisodeSlots(1000)
    async with opened(player):
        groups = await play_all(player, [asked(f"p{number}") for number in range(125)], 0, SAMPLES)
    assert most == 1000
    assert groups[-1].prompt.problem.id == slow.result()
    are_whole(groups, 125)
    assert (player.metrics()["agent/turns"], player.slots.sampling) == (4000, 0)
    await nothing_is_left_open(before)


async def test_two_hundred_commands_play_at_once(tmp_path: Path) -> None:
    path = tmp_path / "agent.py"
    path.write_text(
        f"""
import json, os, sys, urllib.request
def ask(messages):
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps({{"messages": messages}}).encode())) as answer:
        return json.load(answer)["choices"][0]["message"]
messages = [{{"role": "user", "content": sys.stdin.read()}}]
for _ in range({TURNS}):
    messages += [ask(messages), {{"role": "user", "content": "go on"}}]
"""
    )
    agent = CommandAgent(f"{shlex.quote(sys.executable)} -IS {shlex.quote(str(path))}")
    before = open_files()
    player = agent_player(MODEL, turns(SAID), agent=agent, limits={"max_concurrent": 200})
    player.slots = EpisodeSlots(200)
    async with opened(player):
        groups = await play_all(player, [asked(f"p{number}") for number in range(25)], 0, SAMPLES)
    are_whole(groups, 25)
    await nothing_is_left_open(before)


def are_whole(groups: list[Group], count: int) -> None:
    """Every program's turns are a separate trajectory."""
    assert len({group.prompt.problem.id for group in groups}) == len(groups) == count
    sampled = TURNS * len(MODEL.ids(SAID))
    for group in groups:
        assert [each.sample_index for each in group.trajectories] == [*range(SAMPLES)]
        for each in group.trajectories:
            assert (each.answer, each.branches, int(each.loss_mask_T.sum())) == ("It is \\boxed{3}.", (), sampled)


def open_files() -> int:
    """The number of open files of this process."""
    return len(os.listdir("/proc/self/fd"))


async def nothing_is_left_open(before: int) -> None:
    """Waits until no more files are open than before."""
    while open_files() > before:
        await asyncio.sleep(0)
