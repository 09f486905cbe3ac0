"""Cost of HTTP between an agent program and the engine: turns per second, compared with torl's own loop.

    python -m benchmarks.rollout.agent_server [--rounds 3] [--in-flight 64] [--turns 8]

Every turn of a random model ends at one of some tokens, after 24 on average, and is answered with the same result of a
tool that takes no time. "loop" is the internal loop; the others ask the agent server, with a plain HTTP client or with
OpenAI's ("openai"). Interleaved; the medians of the rounds, and their ratios to "loop". The clients run
in the controller's process, as agent functions do. The last line is JSON.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import aiohttp
from openai import AsyncOpenAI
from transformers import Qwen2Config, Qwen2ForCausalLM

from demo_maker.chat import conversation
from demo_maker.chat_model import TEMPLATE, make_tokenizer
from torl import Agent, Outcome, OutcomeStatus, Problem, Prompt, ToolRequest, Turn
from torl.components.agents import AgentLimits
from torl.components.engine import EngineSetup, VllmEngine
from torl.components.engine.vllm.options import VllmOptions
from torl.components.formats.chat import HermesFormat
from torl.components.formats.chat.calls import ChatCall
from torl.components.text.prompts import encode_prompts
from torl.components.text.templates import load_template
from torl.components.text.tokenizer import PlainTextEncoder, load_tokenizer
from torl.components.text.vocabulary import build_vocabulary
from torl.components.tools import Tool
from torl.rollout.agents.episode import AgentSettings
from torl.rollout.agents.messages import PromptRenderer
from torl.rollout.agents.player import AgentPlayer, AgentResources
from torl.rollout.agents.server import AgentServer
from torl.rollout.episode import EpisodePlayer
from torl.rollout.scheduler import play_groups
from torl.rollout.slots import EpisodeSlots
from torl.run.config import RolloutConfig

WINDOW, RESULT = 2048, "7"
TOOLS = [{"type": "function", "function": {"name": "python", "description": "", "parameters": {}}}]


class AlwaysCalls(HermesFormat):
    """Any text of a turn is one call."""

    def calls(self, turn: Turn) -> Sequence[ChatCall]:
        return [ChatCall(ToolRequest("python", {"code": "1"}))]


class Answers(Tool):
    """Takes no time."""

    description, parameters = "", {}

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        return Outcome(OutcomeStatus.OK, RESULT)


class Program(Agent):
    """Asks for the given number of turns; a subclass defines how."""

    def __init__(self, turns: int) -> None:
        self.turns = turns

    async def run(self, problem: Problem, url: str) -> str | None:
        messages: list[Any] = [{"role": "user", "content": problem.question}]
        async with self.client(url) as client:
            for _ in range(self.turns):
                message = await self.ask(client, f"{url}/chat/completions", messages)
                results = [
                    {"role": "tool", "tool_call_id": call["id"], "content": RESULT}
                    for call in message.get("tool_calls") or ()
                ]
                messages += [message, *results]
        return None

    def client(self, url: str) -> Any:
        return aiohttp.ClientSession()

    async def ask(self, client: Any, url: str, messages: list[Any]) -> dict[str, Any]:
        async with client.post(url, json={"messages": messages, "tools": TOOLS}) as answer:
            return (await answer.json())["choices"][0]["message"]  # type: ignore[no-any-return]


class OpenAIProgram(Program):
    """The same by OpenAI's client, of which there is one."""

    openai: AsyncOpenAI | None = None

    async def ask(self, client: Any, url: str, messages: list[Any]) -> dict[str, Any]:
        self.openai = self.openai or AsyncOpenAI(base_url="http://127.0.0.1", api_key="any")
        own = self.openai.with_options(base_url=url.removesuffix("/chat/completions"))
        reply = await own.chat.completions.create(model="policy", messages=messages, tools=TOOLS)
        return reply.choices[0].message.model_dump()  # type: ignore[no-any-return]


async def turns_in_a_second(player: EpisodePlayer, prompts: Sequence[Prompt], series: str) -> float:
    started, turns = time.perf_counter(), 0
    async with aclosing(play_groups(player, prompts, batch_id=series, samples_per_prompt=1)) as groups:
        async for group in groups:
            turns += sum(len(each.turns) for each in group.trajectories)
    return turns / (time.perf_counter() - started)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--turns", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="torl-agents-") as scratch:
        directory = Path(scratch)
        made = make_tokenizer(conversation)
        made.chat_template = TEMPLATE
        made.save_pretrained(directory)
        heads = {"num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1}
        sizes = {"hidden_size": 96, "intermediate_size": 192, "max_position_embeddings": WINDOW}
        Qwen2ForCausalLM(Qwen2Config(vocab_size=384, **heads, **sizes)).save_pretrained(directory)
        tokenizer = load_tokenizer(directory)
        form = AlwaysCalls()
        vocabulary = build_vocabulary(tokenizer, form.visible_tokens)
        encoder = PlainTextEncoder(tokenizer, vocabulary)
        ends = tuple(range(100, 116))
        setup = EngineSetup(directory, vocabulary, WINDOW, ends, directory / "engine.log")
        engine = VllmEngine(setup, VllmOptions(dtype="float32", cpu_threads=1, max_sequences=options.in_flight))
        settings = RolloutConfig(max_response_tokens=WINDOW - 64, max_tool_calls=options.turns - 1)
        tools = {"python": Answers()}
        loop = EpisodePlayer(
            engine=engine,
            tools=tools,
            vocabulary=vocabulary,
            encoder=encoder,
            format=form,
            settings=settings,
            slots=EpisodeSlots(options.in_flight),
            end_token_ids=frozenset(ends),
            seed=1,
        )
        server = AgentServer()
        agents = AgentSettings(AgentLimits(), PromptRenderer(tokenizer, encoder), 64)
        players = {
            "loop": loop,
            "door": AgentPlayer.from_player(loop, AgentResources(Program(options.turns), agents, server)),
            "openai": AgentPlayer.from_player(loop, AgentResources(OpenAIProgram(options.turns), agents, server)),
        }
        problems = [Problem(str(number), f"Find {number} % 7.", "1") for number in range(4 * options.in_flight)]
        prompts = encode_prompts(problems, tokenizer, load_template("chat"), 64, lambda: TOOLS).prompts
        found: dict[str, list[float]] = {name: [] for name in players}
        await asyncio.gather(engine.start(), server.start())
        try:
            await turns_in_a_second(loop, prompts[: options.in_flight], "warm-up")
            for number in range(options.rounds):
                for name, player in players.items():
                    found[name].append(await turns_in_a_second(player, prompts, f"{name}-{number}"))
                    print(f"  {name}: {found[name][-1]:.0f} turns/s", file=sys.stderr, flush=True)
        finally:
            await server.close()
            await engine.close()
    medians = {name: statistics.median(values) for name, values in found.items()}
    ratios = {f"{name}/loop": round(medians[name] / medians["loop"], 3) for name in ("door", "openai")}
    print(json.dumps({**{name: round(value, 1) for name, value in medians.items()}, **ratios}))


if __name__ == "__main__":
    asyncio.run(main())
