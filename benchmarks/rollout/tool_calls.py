"""Cost of tool calls: the time of a rollout with C calls in each response, divided by the time without any.

    python -m benchmarks.rollout.tool_calls [--transcripts FILE] [--rounds 3] [--in-flight 64] [--model DIRECTORY]

Every response has the same number of sampled tokens, and its calls stand where its prompt says
(`forced_calls.py`); nothing is shared between equal runs. All variants run in one engine, interleaved; times
are medians over the rounds. torl is compared with the loop of ToRL's trainer: all episodes sample until their marker,
then all code runs, each run an HTTP-like call of 20 ms, then all texts are tokenized again. It gets torl's stop in the
engine and its prefix cache.

- "batch": this many episodes begin together and all are waited for, as in a synchronous step: what remains of a call is
  what speculation could not hide, and at the end the engine has less and less to do.
- "steady": episodes begin as others end, as in asynchronous training; the seconds are for as many tokens as a batch
  has. What remains is what scheduling costs.

The tools: one that only waits (1 ms, 50 ms, 1 s, or 10 s in one call of a hundred), and the sandbox with the code
blocks of `--transcripts`. The last line is JSON.
"""

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks.rollout.forced_calls import PLAN, PROMPT_TOKENS, ForcedCalls
from torl._core import StopCondition
from torl.base.paths import resolve_path
from torl.base.types import OutcomeStatus, Problem, Prompt, SampledTurn, SamplingParameters, Trajectory, TurnRequest
from torl.components.engine import EngineSetup, VllmEngine
from torl.components.engine.vllm.options import VllmOptions
from torl.components.text.tokenizer import PlainTextEncoder, load_tokenizer, stop_token_ids
from torl.components.text.vocabulary import build_vocabulary
from torl.components.tools.python import PythonTool
from torl.recipes.torl import ToRLFormat
from torl.rollout.episode import EpisodePlayer
from torl.rollout.scheduler import play_groups
from torl.rollout.slots import EpisodeSlots
from torl.run.config import RolloutConfig
from torl_sandbox import Execution, Interpreter, SandboxPool

NAMES = [  # of a round; variants that are compared most closely appear more than once
    *("plain", "c0", "c8_wait1ms", "c8_wait50ms", "c0", "c16_wait50ms", "c8_real"),
    *("c1_wait50ms", "c2_wait50ms", "c4_wait50ms", "c8_wait1s", "c8_rare10s", "c16_real"),
    *("plain", "c0", "c8_wait50ms", "c0", "c16_wait50ms", "c8_real"),
    *("c0_steady", "c8_wait50ms_steady", "c16_wait50ms_steady", "c8_wait1s_steady", "c8_rare10s_steady"),
    *("c8_real_steady", "c8_wait50ms_torl_loop", "c8_real_torl_loop"),
]
SNIPPETS = 500
HTTP_SECONDS = 0.02


class ForcedEngine(VllmEngine):
    """An engine whose model calls its tool where the plan says."""

    ended: list[tuple[float, int]]  # when each turn ended, and how many tokens it had

    async def sample(self, *args: Any, **kwargs: Any) -> SampledTurn:
        turn = await super().sample(*args, **kwargs)
        self.ended.append((time.perf_counter(), len(turn.token_ids)))
        return turn

    def core_seconds(self) -> float:
        """CPU time of the engine's core so far."""
        fields = Path(f"/proc/{self.processes[0].pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Waiting:
    """A tool that does nothing for a while; `seconds(n)` is how long its n-th call takes."""

    seconds: Callable[[int], float]
    calls: int = 0

    async def run_async(self, code: str, *, seed: int = 0) -> Execution:
        self.calls += 1
        await asyncio.sleep(self.seconds(self.calls))
        return Execution(OutcomeStatus.OK, "1\n", "", None, None, None, 0.0, 0.0, 0)


@dataclass
class Running:
    """The sandbox. The forced block holds a number; the snippet of that number is what runs."""

    pool: SandboxPool
    snippets: list[str]

    async def run_async(self, code: str, *, seed: int = 0) -> Execution:
        return await self.pool.run_async(self.snippets[int(re.sub(r"\D", "", code))], seed=seed)


@dataclass
class Bench:
    """Objects that the variants share."""

    engine: ForcedEngine
    player: Callable[[Interpreter, int, int], EpisodePlayer]
    encoder: PlainTextEncoder
    vocabulary: Any
    tokens: int
    in_flight: int
    samples: dict[str, list[float]] = field(default_factory=dict)
    core: dict[str, list[float]] = field(default_factory=dict)
    computed: dict[str, int] = field(default_factory=dict)  # tokens that went through the model, in the last batch
    run: int = 0

    def prompts(self, calls: int, count: int) -> list[Prompt]:
        """Prompts that no run has had: nothing of them is cached."""
        self.run += 1
        source = random.Random(self.run)
        drawn = [[calls, *(source.randrange(5, 250) for _ in range(PROMPT_TOKENS - 1))] for _ in range(count)]
        return [Prompt(Problem(f"{self.run}-{n}", "", "1"), tuple(ids)) for n, ids in enumerate(drawn)]

    async def timed(self, name: str, work: Callable[[], Awaitable[float]]) -> None:
        await self.engine._llm.reset_prefix_cache()
        core = self.engine.core_seconds()
        started = time.perf_counter()
        seconds = await work()
        self.core.setdefault(name, []).append((self.engine.core_seconds() - core) / (time.perf_counter() - started))
        self.samples.setdefault(name, []).append(seconds)
        print(f"  {name}: {seconds:.2f} s", file=sys.stderr, flush=True)

    async def batch(self, name: str, tool: Interpreter, calls: int, episodes: int | None = None) -> float:
        """Seconds for one batch, from its first episode to its last."""
        player = self.player(tool, calls, self.in_flight)
        started = time.perf_counter()
        computed = 0
        prompts = self.prompts(calls, episodes or self.in_flight)
        groups = play_groups(player, prompts, batch_id=self.run, samples_per_prompt=1)
        async with aclosing(groups):
            async for group in groups:
                (trajectory,) = group.trajectories
                self.check(trajectory, calls)
                # A turn computes what of its prefix is not cached, and all it samples but the last token.
                computed += sum(PROMPT_TOKENS + turn.stop - turn.cached_tokens - 1 for turn in trajectory.turns)
        self.computed[name] = computed
        return time.perf_counter() - started

    async def steady(self, tool: Interpreter, calls: int) -> float:
        """Seconds for a batch's tokens where episodes begin as others end: from the second batch's to the third's."""
        player, batch = self.player(tool, calls, self.in_flight), self.in_flight * self.tokens
        prompts = self.prompts(calls, 12 * self.in_flight)
        self.engine.ended = []
        groups = play_groups(player, prompts, batch_id=self.run, samples_per_prompt=1)
        async with aclosing(groups):
            async for group in groups:
                self.check(group.trajectories[0], calls)
                sampled = list(accumulate(tokens for _, tokens in self.engine.ended))
                if sampled[-1] >= 3 * batch:
                    break
        first, last = (next(at for at, tokens in enumerate(sampled) if tokens >= n * batch) for n in (1, 3))
        return (self.engine.ended[last][0] - self.engine.ended[first][0]) / 2

    def check(self, trajectory: Trajectory, calls: int) -> None:
        sampled = int(trajectory.loss_mask_T.sum())
        if len(trajectory.tool_calls) != calls or sampled != self.tokens:
            raise RuntimeError(
                f"{len(trajectory.tool_calls)} calls and {sampled} tokens, not {calls} and {self.tokens}"
            )
        if not all(call.code for call in trajectory.tool_calls):
            raise RuntimeError("a call had no code")

    async def torl_loop(self, tool: Interpreter, calls: int) -> float:
        """The same batch as ToRL's loop plays it: a barrier after each turn, a slow call, texts tokenized again."""

        async def call(code: str) -> str:
            await asyncio.sleep(HTTP_SECONDS)
            return (await tool.run_async(code)).stdout

        started = time.perf_counter()
        prompts = self.prompts(calls, self.in_flight)
        contexts = [list(prompt.token_ids) for prompt in prompts]
        for turn in range(calls + 1):
            end = StopCondition.marker(b"```output") if turn < calls else StopCondition.never()
            turns = await asyncio.gather(
                *(
                    self.engine.sample(
                        TurnRequest(
                            f"{prompt.problem.id}/{turn}",
                            context,
                            SamplingParameters(max_tokens=self.tokens, seed=number),
                            end,
                        )
                    )
                    for number, (prompt, context) in enumerate(zip(prompts, contexts, strict=True))
                )
            )
            if turn == calls:
                break
            texts = [self.vocabulary.decode(list(sampled.token_ids)) for sampled in turns]
            codes = [text.rpartition("```python\n")[2].partition("\n```")[0] for text in texts]
            outputs = await asyncio.gather(*map(call, codes))
            for context, prompt, text, output in zip(contexts, prompts, texts, outputs, strict=True):
                # The first tokens of a prompt are its plan, and no text.
                whole = self.vocabulary.decode(context[len(prompt.token_ids) :]) + text + f"\n{output[:256]}\n```\n"
                context[:] = [*prompt.token_ids, *self.encoder.encode(whole)]
        return time.perf_counter() - started

    async def plain(self) -> float:
        """The same prompts through vLLM's own `generate`, without torl."""
        from vllm import SamplingParams
        from vllm.inputs.engine import tokens_input
        from vllm.sampling_params import RequestOutputKind

        async def one(prompt: Prompt, number: int) -> None:
            sampling = SamplingParams(
                max_tokens=self.tokens,
                seed=number,
                stop_token_ids=list(self.engine._setup.stop_token_ids),
                logprobs=0,
                flat_logprobs=True,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            ids = tokens_input(list(prompt.token_ids))
            async for output in self.engine._llm.generate(ids, sampling, f"plain-{prompt.problem.id}"):
                if len(output.outputs[0].token_ids) != self.tokens:
                    raise RuntimeError(f"{len(output.outputs[0].token_ids)} tokens, not {self.tokens}")

        started = time.perf_counter()
        prompts = self.prompts(0, self.in_flight)
        await asyncio.gather(*(one(prompt, number) for number, prompt in enumerate(prompts)))
        return time.perf_counter() - started

    def ratio(self, name: str, base: str) -> float | None:
        if name not in self.samples or base not in self.samples:
            return None
        return round(statistics.median(self.samples[name]) / statistics.median(self.samples[base]), 3)


def copy_model(source: Path, directory: Path, layers: int | None) -> Path:
    """The model with a context that is long enough; its answers do not matter here. With `layers`: a larger one."""
    shutil.copytree(source, directory)
    config = json.loads((directory / "config.json").read_text()) | {"max_position_embeddings": 8192}
    if layers is not None:
        heads = {"num_attention_heads": 12, "num_key_value_heads": 4}
        config |= {"num_hidden_layers": layers, "hidden_size": 768, "intermediate_size": 2048, **heads}
        model = Qwen2ForCausalLM(Qwen2Config(**config))
        print(f"{model.num_parameters() / 1e6:.0f} M parameters", file=sys.stderr)
        model.save_pretrained(directory)
    else:
        (directory / "config.json").write_text(json.dumps(config))
    return directory


def read_snippets(path: Path) -> list[str]:
    found: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        found += re.findall(r"```python\n(.*?)```", json.loads(line)["transcript"], re.DOTALL)
    return found[:SNIPPETS]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transcripts", type=Path, help="JSON lines with a `transcript` that has code blocks")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=1020, help="sampled tokens of a response")
    parser.add_argument("--only", nargs="+", default=NAMES, metavar="NAME", help="variants to time (c0 is required)")
    parser.add_argument("--model", default="torl:demo/base_model")
    parser.add_argument(
        "--layers", type=int, help="a random model of so many layers, 768 wide, in place of its weights"
    )
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--cache-gib", type=int, default=3)
    options = parser.parse_args()
    names = [name for name in options.only if options.transcripts or "real" not in name]
    if "c0" not in names:
        parser.error("c0 is what all others are compared with")
    snippets = read_snippets(options.transcripts) if options.transcripts else []
    async with open_bench(options, len(snippets) or SNIPPETS) as bench:
        with SandboxPool(1, result_cache_bytes=0) as pool:
            await measure(bench, options.rounds, names, Running(pool, snippets) if snippets else None)
    report(bench)


@asynccontextmanager
async def open_bench(options: argparse.Namespace, snippets: int) -> AsyncIterator[Bench]:
    """An engine whose model calls, with all that the variants share; blocks hold the numbers below `snippets`."""
    with tempfile.TemporaryDirectory(prefix="torl-rollout-") as scratch:
        directory = Path(scratch)
        model = copy_model(resolve_path(options.model), directory / "model", options.layers)
        tokenizer = load_tokenizer(model)
        vocabulary = build_vocabulary(tokenizer)
        encoder = PlainTextEncoder(tokenizer, vocabulary)
        stops = stop_token_ids(model, tokenizer)
        codes = [f"\n```python\nprint({number})\n```\n```output" for number in range(snippets)]
        plan = {
            "tokens": options.tokens,
            "calls": [encoder.encode(code) for code in codes],
            "marker": encoder.encode("```output"),
            "banned": [*(i for i in range(len(vocabulary)) if b"`" in vocabulary.decode_bytes([i])), *stops],
            "end": tokenizer.eos_token_id,
        }
        (directory / "plan.json").write_text(json.dumps(plan))
        engine = ForcedEngine(
            EngineSetup(
                model=model,
                vocabulary=vocabulary,
                max_model_tokens=PROMPT_TOKENS + options.tokens + 17 * 160,
                stop_token_ids=stops,
                log_path=directory / "engine.log",
            ),
            VllmOptions(
                dtype=options.dtype,
                cpu_threads=1,
                max_sequences=options.in_flight,
                cpu_kv_cache_gib=options.cache_gib,
                arguments={"logits_processors": [f"{ForcedCalls.__module__}:{ForcedCalls.__name__}"]},
            ),
        )
        engine.ended = []
        os.environ[PLAN] = str(directory / "plan.json")  # for the engine's processes

        def player(tool: Interpreter, calls: int, in_flight: int) -> EpisodePlayer:
            settings = RolloutConfig(max_response_tokens=options.tokens + 17 * 160, max_tool_calls=calls)
            tools = {"python": PythonTool(interpreter=tool)}
            return EpisodePlayer(
                engine=engine,
                tools=tools,
                vocabulary=vocabulary,
                encoder=encoder,
                format=ToRLFormat(),
                settings=settings,
                slots=EpisodeSlots(in_flight),
                seed=1,
            )

        await engine.start()
        try:
            yield Bench(engine, player, encoder, vocabulary, options.tokens, options.in_flight)
        finally:
            await engine.close()


def variants(bench: Bench, sandbox: Interpreter | None) -> dict[str, Callable[[], Awaitable[float]]]:
    """The variants to time, by name, in the order of a round."""
    rare = random.Random(0)
    tools: dict[str, Interpreter] = {
        "wait1ms": Waiting(lambda _: 0.001),
        "wait50ms": Waiting(lambda _: 0.05),
        "wait1s": Waiting(lambda _: 1.0),
        "rare10s": Waiting(lambda _: 10.0 if rare.random() < 0.01 else 0.0),
    }
    if sandbox is not None:
        tools["real"] = sandbox
    found: dict[str, Callable[[], Awaitable[float]]] = {
        "plain": bench.plain,
        "c0": lambda: bench.batch("c0", tools["wait1ms"], 0),
        "c0_steady": lambda: bench.steady(tools["wait1ms"], 0),
    }
    for name, tool in tools.items():
        for calls in (1, 2, 4, 8, 16):
            whole = f"c{calls}_{name}"
            found[whole] = partial(bench.batch, whole, tool, calls)
            found[f"{whole}_steady"] = partial(bench.steady, tool, calls)
            found[f"{whole}_torl_loop"] = partial(bench.torl_loop, tool, calls)
    return found


async def measure(bench: Bench, rounds: int, names: list[str], sandbox: Interpreter | None) -> None:
    works = variants(bench, sandbox)
    await bench.batch("", Waiting(lambda _: 0.0), 16, episodes=min(8, bench.in_flight))  # the first is slower
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        for name in names:
            await bench.timed(name, works[name])


def report(bench: Bench) -> None:
    names = [name for name in bench.samples if name not in ("plain", "c0", "c0_steady")]
    ratios = {f"ratio_{name}": bench.ratio(name, "c0_steady" if name.endswith("steady") else "c0") for name in names}
    busy = {f"engine_busy_{name}": round(statistics.median(shares), 3) for name, shares in bench.core.items()}
    computed = {f"computed_{name}": round(bench.computed[name] / bench.computed["c0"], 3) for name in bench.computed}
    rate = bench.tokens * bench.in_flight / statistics.median(bench.samples["c0"])
    for name, ratio in ratios.items():
        print(f"{name:36} {ratio}    tokens computed {computed.get(name.replace('ratio', 'computed'), '')}")
    print(
        json.dumps(
            {
                "in_flight": bench.in_flight,
                "tokens": bench.tokens,
                "tokens_per_s": round(rate),
                "no_tool_vs_vllm": bench.ratio("plain", "c0"),
                "samples_s": {name: [round(value, 2) for value in values] for name, values in bench.samples.items()},
                **ratios,
                **computed,
                **busy,
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
