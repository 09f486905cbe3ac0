"""Players of agent programs on a scripted engine, and what a program sends and reads."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from builders import asked, player
from chat_models import ChatModel
from scripted_engine import STOP, ScriptedEngine, ScriptedInterpreter
from torl.base.types import Problem, Trajectory
from torl.components.agents import Agent, AgentLimits
from torl.rollout.agents.episode import AgentEpisode, AgentSettings
from torl.rollout.agents.messages import Completion, PromptRenderer
from torl.rollout.agents.player import AgentPlayer, AgentResources
from torl.rollout.agents.requests import ChatRequest
from torl.rollout.agents.server import AgentServer

MODEL = ChatModel.of("hermes")
TEMPLATE = (
    "{% if tools %}tools: {{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}<|endoftext|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}\n{{ call.function | tojson }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}<|endoftext|>assistant\n{% endif %}"
)
TOOLS = [{"type": "function", "function": {"name": "python", "description": "Runs code.", "parameters": {}}}]


@dataclass
class Scripted(Agent):
    """A program that is a function of the test."""

    play: Callable[[Problem, str], Awaitable[str | None]]

    async def run(self, problem: Problem, url: str) -> str | None:
        return await self.play(problem, url)


async def nothing(problem: Problem, url: str) -> str | None:
    """Plays no episode: the test asks in its place."""
    return None


def agent_player(
    model: ChatModel,
    script: Callable[[str], Sequence[int]],
    play: Callable[[Problem, str], Awaitable[str | None]] = nothing,
    *,
    agent: Agent | None = None,
    window: int = 4000,
    version: Callable[[str], int] = lambda _: 0,
    fail_on: str | None = None,
    limits: Mapping[str, Any] | None = None,
    **settings: Any,
) -> AgentPlayer:
    """A player whose engine samples by the script; its server is not started."""
    model.tokenizer.chat_template = TEMPLATE
    engine = ScriptedEngine(
        script,
        version=version,
        fail_on=fail_on,
        vocabulary=model.vocabulary,
        stop_token_ids=model.end_token_ids | {STOP},
    )
    max_prompt_tokens = window - settings.get("limit", 200)
    renderer = PromptRenderer(model.tokenizer, model.encoder)
    agents = AgentSettings(AgentLimits(**(limits or {})), renderer, max_prompt_tokens)
    parts = AgentResources(agent or Scripted(play), agents, AgentServer())
    own = player(
        engine,
        ScriptedInterpreter(),
        form=model.form,
        vocabulary=model.vocabulary,
        encoder=model.encoder,
        end_token_ids=model.end_token_ids,
        **settings,
    )
    return AgentPlayer.from_player(own, parts)


async def ask(episode: AgentEpisode, messages: Sequence[Mapping[str, Any]], **rest: Any) -> Completion:
    """A request as it comes through the server."""
    body = json.loads(json.dumps({"messages": [*messages], **rest}))
    return await episode.complete(ChatRequest.read(body))


def user(text: str) -> dict[str, Any]:
    """A message of the user."""
    return {"role": "user", "content": text}


def result(call: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The result of a call."""
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


def begun(player: AgentPlayer) -> AgentEpisode:
    """An episode whose program is the test."""
    player.slots.begin()
    return AgentEpisode(player, player.agents.settings, asked(), 0, 0)


def turns(*texts: str) -> Callable[[str], Sequence[int]]:
    """An engine's script in `MODEL`: the turns of an episode, the last one from then on."""
    return lambda name: MODEL.ids(texts[min(int(name.rpartition("/")[2]), len(texts) - 1)])


@asynccontextmanager
async def opened(player: AgentPlayer) -> AsyncIterator[AgentPlayer]:
    """The player with its server started."""
    await player.agents.server.start()
    try:
        yield player
    finally:
        await player.agents.server.close()


async def played(player: AgentPlayer) -> Trajectory:
    """One episode of its program."""
    async with opened(player):
        player.slots.begin()
        return await player.play(asked("sum"), batch_id=0, sample=0)
