"""Cost of a second tool, and gain of parallel calls in one turn: ratios of rollouts in one engine.

    python -m benchmarks.rollout.two_tools [--rounds 5] [--in-flight 32] [--tokens 510]

Every response has eight calls where its prompt says (`forced_calls.py`), and as many sampled tokens. Variants
are played in turns, in batches; times are medians over the rounds.

- "one": eight turns with a call each, all of one tool. "two": the same, every other call of another tool.
- "side by side": four turns with two calls each, of a tool that keeps nothing. "one after another": the same, of a tool
  whose session keeps something, so that the second call waits for the first.

Each call takes 50 ms and begins when it is asked for, never early: the comparison is of the dispatch of calls, not of
speculation. The last line is JSON.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from benchmarks.rollout.tool_calls import Bench, open_bench
from torl.base.types import MalformedCall, Outcome, OutcomeStatus, ToolRequest, Turn
from torl.components.tools import BaseTool, StatefulTool, Tool, ToolSession
from torl.recipes.torl import ToRLFormat
from torl.rollout.scheduler import play_groups

SECONDS = 0.05
CALLS = 8


class Pause(Tool):
    """A call that only takes time, of a tool that keeps nothing."""

    description = "Waits."
    parameters: Mapping[str, Any] = {"type": "object"}

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        """The same for all."""
        await asyncio.sleep(SECONDS)
        return Outcome(OutcomeStatus.OK, "1\n")


class KeptPause(StatefulTool):
    """The same, of a tool whose sessions keep something."""

    description = Pause.description
    parameters = Pause.parameters

    def session(self, seed: int) -> ToolSession:
        """A session that is another after each call."""
        return _Kept()


class _Kept(ToolSession):
    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        return await Pause().call(arguments)

    def fork(self) -> Self:
        return type(self)()


@dataclass
class EitherTool(ToRLFormat):
    """ToRL's format, whose blocks ask for `tools` in turn, and for `calls` of them at once."""

    names: tuple[str, ...]
    calls: int = 1

    def __post_init__(self) -> None:
        ToRLFormat.__init__(self)

    def parse_calls(self, turn: Turn) -> Sequence[ToolRequest | MalformedCall]:
        """The tool chosen by the number that the block holds."""
        code = turn.blocks[-1].code
        number = int("".join(filter(str.isdigit, code)))
        return [
            ToolRequest(self.names[(number + each) % len(self.names)], {"code": code}) for each in range(self.calls)
        ]


async def batch(bench: Bench, tools: Mapping[str, BaseTool], calls: int, turns: int) -> float:
    """Seconds from the first episode's beginning to the last one's end."""
    player = replace(bench.player(None, CALLS, bench.in_flight), tools=tools, format=EitherTool((*tools,), calls))
    player.settings = player.settings.model_copy(update={"speculative_execution": False})
    prompts = bench.prompts(turns, bench.in_flight)
    counts = dict.fromkeys(tools, 0)
    started = time.perf_counter()
    groups = play_groups(player, prompts, batch_id=bench.run, samples_per_prompt=1)
    async with aclosing(groups):
        async for group in groups:
            (trajectory,) = group.trajectories
            bench.check(trajectory, CALLS)
            for call in trajectory.tool_calls:
                counts[call.request.tool] += 1
    seconds = time.perf_counter() - started
    if min(counts.values()) < 0.3 * CALLS * bench.in_flight / len(tools):
        raise RuntimeError(f"a tool was hardly asked: {counts}")
    return seconds


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--in-flight", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=510, help="sampled tokens of a response")
    options = parser.parse_args()
    options.model, options.layers, options.dtype, options.cache_gib = "torl:demo/base_model", None, "float32", 1
    async with open_bench(options, 500) as bench:
        works = {
            "one": partial(batch, bench, {"python": Pause()}, 1, CALLS),
            "two": partial(batch, bench, {"python": Pause(), "search": Pause()}, 1, CALLS),
            "side by side": partial(batch, bench, {"python": Pause()}, 2, CALLS // 2),
            "one after another": partial(batch, bench, {"python": KeptPause()}, 2, CALLS // 2),
        }
        await works["two"]()  # the first is slower
        for number in range(options.rounds):
            # Every other round backwards: what grows slower over time is on both sides then.
            for name in [*works][:: 1 - 2 * (number % 2)]:
                await bench.timed(name, works[name])
    seconds = {name: statistics.median(samples) for name, samples in bench.samples.items()}
    ratios = {
        "two_tools_vs_one": round(seconds["two"] / seconds["one"], 3),
        "side_by_side_vs_one_after_another": round(seconds["side by side"] / seconds["one after another"], 3),
    }
    for name, ratio in ratios.items():
        print(f"{name:36} {ratio}")
    print(
        json.dumps({**ratios, "samples_s": {name: [round(s, 2) for s in all] for name, all in bench.samples.items()}})
    )


if __name__ == "__main__":
    asyncio.run(main())
