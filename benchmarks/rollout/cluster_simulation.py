"""Load on one controller: the real player, router, scanner and splicer with 8 to 4,096 engines that cost nothing.

    python -m benchmarks.rollout.cluster_simulation [--engines 8 64 512 4096] [--episodes 2048]
                                                   [--tokens-per-second 2500]

Every episode makes four calls and has a response of some 3,072 tokens. An engine gives turns that were made before,
after a while; the tool answers after a while (`SECONDS`, `TOOL_SECONDS`: the order of what they take; the CPU time
that is measured depends on neither). Episodes begin, are played, graded, made samples of and recorded as in a run.

A controller is full when its CPU time for an episode is as long as the time in which the engines give one. With
`--tokens-per-second` of one GPU, an assumption, the last column is the number of GPUs at which that is. The last line
is JSON.
"""

import argparse
import asyncio
import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, ClassVar, NoReturn

from benchmarks.rollout import step_budget
from benchmarks.rollout.step_budget import Meter, play
from torl.base.types import Outcome, OutcomeStatus, SampledTurn, TurnRequest
from torl.components.engine.protocol import Engine
from torl.components.tools import Tool

CALLS = 4
RESPONSE_TOKENS = 3072
SECONDS = (0.2, 3.0)
TOOL_SECONDS = (0.005, 0.05)
OBSERVATION_TOKENS = 12


class SimulatedEngine(Engine):
    """Gives a turn that calls, as long as there are calls left, and then one that answers."""

    def __init__(self, first: list[SampledTurn], last: list[SampledTurn], prompt_tokens: int) -> None:
        self.first, self.last, self.prompt_tokens = first, last, prompt_tokens

    async def sample(self, request: TurnRequest, on_block: Any = None) -> SampledTurn:
        await asyncio.sleep(random.uniform(*SECONDS))
        calls = (len(request.prefix) - self.prompt_tokens) // step_budget.TURN_TOKENS
        turns = self.first if calls < CALLS else self.last
        return turns[request.sampling.seed % len(turns)]

    async def watch(self) -> NoReturn:
        """An engine on a node reports its death; nothing polls it."""
        await asyncio.Future()
        raise AssertionError


class SimulatedTool(Tool):
    """Prints a number after a while."""

    description = "Runs Python."
    parameters: ClassVar = {"type": "object"}

    async def call(self, arguments: Any) -> Outcome:
        await asyncio.sleep(random.uniform(*TOOL_SECONDS))
        return Outcome(OutcomeStatus.OK, "338350\n")


def measure(engines: int, episodes: int) -> Meter:
    """One step of the given number of episodes, sixteen of each problem."""
    size = SimpleNamespace(prompts=episodes // 16, samples=16, engines=engines, calls=CALLS)
    with TemporaryDirectory() as directory:
        return asyncio.run(play(size, Path(directory), None, engine=SimulatedEngine, tool=SimulatedTool))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=int, nargs="+", default=[8, 64, 512, 4096])
    parser.add_argument("--episodes", type=int, default=2048)
    parser.add_argument("--tokens-per-second", type=float, default=2500.0)
    options = parser.parse_args()
    step_budget.TURN_TOKENS = RESPONSE_TOKENS // (CALLS + 1) - OBSERVATION_TOKENS
    rows = []
    print(f"{'engines':>8}{'ms an episode':>15}{'play':>8}{'longest stall':>15}{'GPUs when full':>16}")
    for engines in options.engines:
        meter = measure(engines, options.episodes)
        spent = sum(meter.seconds.values()) / options.episodes
        full = int(RESPONSE_TOKENS / options.tokens_per_second / spent)
        row = {
            "engines": engines,
            "ms_per_episode": round(1000 * spent, 3),
            "play_ms_per_episode": round(1000 * meter.seconds["play"] / options.episodes, 3),
            "longest_stall_ms": round(1000 * max(meter.stalls.values()), 1),
            "gpus_when_full": full,
        }
        rows.append(row)
        print(
            f"{engines:8}{row['ms_per_episode']:15.2f}{row['play_ms_per_episode']:8.2f}"
            f"{row['longest_stall_ms']:12.0f} ms{full:16}",
            flush=True,
        )
    print(json.dumps({"episodes": options.episodes, "tokens_per_second": options.tokens_per_second, "rows": rows}))


if __name__ == "__main__":
    main()
