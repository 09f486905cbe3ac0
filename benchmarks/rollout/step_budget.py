"""Cost of a step for the controller, and how long its event loop blocks, with 2,048 episodes at once.

    python -m benchmarks.rollout.step_budget [--prompts 128] [--samples 16] [--engines 8] [--rounds 3] [--profile FILE]

All is real but the engines, which give turns that were made before, after a while, and the tool, which answers at once:
the step's player with its router, slots, scanner and splicer, the boxed reward with its graders, selection, advantages,
and the records. A turn of 300 tokens asks for a call, another one of 300 gives the answer. What vLLM's own front end
costs is not in it.

CPU time is that of the controller's process without its children: other programs do not count. A stall is the CPU time
that the loop's thread takes between two moments at which it could do something else. The last line is JSON, of the best
round.
"""

import argparse
import asyncio
import cProfile
import gc
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from torl.base.component import RunContext
from torl.base.paths import resolve_path
from torl.base.types import Outcome, OutcomeStatus, Problem, Prompt, SampledTurn, TurnRequest
from torl.components.data import PromptSampler
from torl.components.engine.protocol import Engine
from torl.components.engine.replicas import Replicas
from torl.components.text.tokenizer import PlainTextEncoder, load_tokenizer
from torl.components.text.vocabulary import build_vocabulary
from torl.components.tools import BaseTool, StatefulTool, ToolSession
from torl.rollout.episode import EpisodePlayer
from torl.rollout.slots import EpisodeSlots
from torl.run.config import TrainConfig
from torl.run.display.console import Console
from torl.run.records.dynamics import staleness, training_dynamics
from torl.run.records.writers import RunWriter
from torl.training.samples import training_samples, with_advantages
from torl.training.selection import masked_trajectories
from torl.training.step import StepPlayer, step_records
from torl.training.step_problems import StepProblems

MODEL = "torl:demo/base_model"
TEXT = (
    "To find the sum we add the first and the second term, and look at what is left over.\n```python\ntotal = 0\n"
    "for n in range(1, 101):\n    total += n * n  # squares\nprint(total)\n```\n"
)
TURN_TOKENS = 300
SECONDS = (0.2, 3.0)  # that a turn takes


class FreeEngine(Engine):
    """Gives one of a few turns, by whether the prefix has an answer of the tool in it."""

    def __init__(self, first: list[SampledTurn], last: list[SampledTurn], prompt_tokens: int) -> None:
        self.turns = (first, last)
        self.prompt_tokens = prompt_tokens

    async def sample(self, request: TurnRequest, on_block: Any = None) -> SampledTurn:
        await asyncio.sleep(random.uniform(*SECONDS))
        turns = self.turns[len(request.prefix) > self.prompt_tokens]
        return turns[request.sampling.seed % len(turns)]


class FreeTool(StatefulTool):
    """Answers at once."""

    description = "Runs Python."
    parameters: ClassVar = {"type": "object"}

    def session(self, seed: int) -> ToolSession:
        return FreeSession()


class FreeSession(ToolSession):
    """Prints a number."""

    async def call(self, arguments: Any) -> Outcome:
        return Outcome(OutcomeStatus.OK, "338350\n")


class Meter:
    """CPU seconds of this process, and the most that its loop took between two of its turns."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.stalls: dict[str, float] = {}

    @contextmanager
    def measured(self, name: str) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        longest = 0.0
        last, total = time.thread_time(), time.process_time()
        over = False

        def beat() -> None:
            nonlocal last, longest
            now = time.thread_time()
            longest, last = max(longest, now - last), now
            if not over:
                loop.call_later(0.0005, beat)

        beat()
        yield
        self.seconds[name] = time.process_time() - total
        over = True
        beat()
        self.stalls[name] = longest


def make_turns(tokenizer: Any) -> tuple[list[SampledTurn], list[SampledTurn]]:
    """Eight turns that end in a call, and eight that end with an answer, right or wrong."""

    def turn(text: str, reason: Any, extra: list[int]) -> SampledTurn:
        ids = [*tokenizer.encode(text, add_special_tokens=False), *extra]
        return SampledTurn(tuple(ids), tuple(-0.1 for _ in ids), ((0, 0),), reason, cached_tokens=0)

    filler = tokenizer.encode("And so on, as we have seen before. " * 100, add_special_tokens=False)

    def long(text: str, number: int) -> str:
        missing = TURN_TOKENS - len(tokenizer.encode(text, add_special_tokens=False))
        return tokenizer.decode(filler[number : number + missing]) + text

    first = [turn(long(f"\n{TEXT}```output", number), "end", []) for number in range(8)]
    answers = ["338350", "338351", "\\frac{676700}{2}", "5"]
    last = [
        turn(long(f"\nThe answer is $\\boxed{{{answers[number % 4]}}}$.", number), "stop", [tokenizer.eos_token_id])
        for number in range(8)
    ]
    return first, last


async def play(
    options: Any,
    directory: Path,
    profile: cProfile.Profile | None,
    *,
    engine: Callable[[list[SampledTurn], list[SampledTurn], int], Engine] = FreeEngine,
    tool: Callable[[], BaseTool] = FreeTool,
) -> Meter:
    """A step of `options.prompts` times `options.samples` episodes, with `options.calls` calls each."""
    tokenizer = load_tokenizer(resolve_path(MODEL))
    vocabulary = build_vocabulary(tokenizer)
    ids = tuple(tokenizer.encode("What is the sum of the first hundred squares? " * 10, add_special_tokens=False))
    prompts = [Prompt(Problem(f"p{number}", "sum", "338350"), ids) for number in range(options.prompts)]
    config = TrainConfig.model_validate(
        {
            "run": {"directory": directory, "steps": 1},
            "model": {"path": MODEL},
            "data": {"train": "unused.jsonl"},
            "rollout": {
                "prompts_per_step": options.prompts,
                "samples_per_prompt": options.samples,
                "max_tool_calls": options.calls,
                "max_response_tokens": 4096,
            },
        }
    )
    first, last = make_turns(tokenizer)
    engines = Replicas(
        lambda *_: engine(first, last, len(ids)),
        options.engines,
        max_restarts=0,
        policy_version=0,
        shares_devices=False,
    )
    player = EpisodePlayer(
        engine=engines,
        tools={"python": tool()},
        vocabulary=vocabulary,
        encoder=PlainTextEncoder(tokenizer, vocabulary),
        format=config.rollout.format.make(),
        settings=config.rollout,
        slots=EpisodeSlots(options.prompts * options.samples),
    )
    reward = config.reward.make()
    meter = Meter()
    gc.collect()
    gc.freeze()  # as the start of an engine does
    await engines.start()
    await reward.start(RunContext())
    try:
        with Console() as console, RunWriter(directory) as writer:
            stepping = StepPlayer(config, StepProblems(PromptSampler(prompts, 0)), player, reward, console)
            if profile is not None:
                profile.enable()
            with meter.measured("play"):
                played = await stepping.play(0)
            with meter.measured("learn"):
                batch = [member for group in played.batch for member in group.members]
                await asyncio.to_thread(masked_trajectories, batch, config.selection)
                samples = await asyncio.to_thread(training_samples, batch)
                samples = await asyncio.to_thread(with_advantages, samples, played.batch, config.algorithm)
            with meter.measured("record"):
                records = await asyncio.to_thread(step_records, 0, played, samples, config.algorithm)
                await asyncio.to_thread(writer.write_trajectories, 0, records)
                metrics = await asyncio.to_thread(training_dynamics, played.groups)
                metrics |= await asyncio.to_thread(staleness, played.trajectories, 0)
                writer.write_metrics(0, metrics)
            if profile is not None:
                profile.disable()
    finally:
        await engines.close()
        await reward.close()
    trajectories = played.trajectories
    assert len(trajectories) == options.prompts * options.samples
    assert all(len(each.tool_calls) == options.calls == len(each.turns) - 1 for each in trajectories)
    return meter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=128)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--engines", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", type=Path, help="write a profile of the last round to this file")
    options = parser.parse_args(namespace=argparse.Namespace(calls=1))
    episodes = options.prompts * options.samples
    meters = []
    for number in range(options.rounds):
        profile = cProfile.Profile() if options.profile and number == options.rounds - 1 else None
        with TemporaryDirectory() as directory:
            meter = asyncio.run(play(options, Path(directory), profile))
        if profile is not None:
            profile.dump_stats(options.profile)
            if options.rounds > 1:
                break  # its times are not those of the program
        meters.append(meter)
        for name, seconds in meter.seconds.items():
            print(
                f"{name:7} {1000 * seconds / episodes:6.2f} ms an episode, longest stall "
                f"{1000 * meter.stalls[name]:6.1f} ms"
            )
    best = min(meters, key=lambda meter: sum(meter.seconds.values()))
    result = {
        "episodes": episodes,
        "engines": options.engines,
        "ms_per_episode": round(1000 * sum(best.seconds.values()) / episodes, 3),
        "longest_stall_ms": round(1000 * max(best.stalls.values()), 1),
        **{f"{name}_ms_per_episode": round(1000 * seconds / episodes, 3) for name, seconds in best.seconds.items()},
        **{f"{name}_stall_ms": round(1000 * seconds, 1) for name, seconds in best.stalls.items()},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
