"""OpenAI's client against the real engine: it receives the sampled tokens, and continues where it stopped."""

import asyncio
import copy
from pathlib import Path
from typing import Any

import openai

from builders import play_all, player
from scripted_engine import ScriptedInterpreter
from torl.base.types import Markup, Problem
from torl.components.agents import Agent, AgentLimits
from torl.components.formats import ChatFormat
from torl.rollout.agents.episode import AgentSettings
from torl.rollout.agents.messages import PromptRenderer
from torl.rollout.agents.player import AgentPlayer, AgentResources
from torl.rollout.agents.server import AgentServer
from torl.run.config import RolloutConfig
from torl_lab.audit.replay import ReplayContext
from torl_lab.audit.tokens import agent_mismatch

END = "<|endoftext|>"
TEMPLATE = "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}<|endoftext|>{% endif %}{% endfor %}"


class Documents(ChatFormat):
    """The tiny model's documents as a conversation: what a user says follows the end of one."""

    name = "documents"
    end_tokens = (END,)
    control_tokens = (END,)

    def calls(self, turn: Any) -> list[Any]:
        return []

    def render_user(self, content: str) -> list[str | Markup]:
        return [content]


class Talk(Agent):
    """Asks twice in a row, then for another second answer, at once by a stream and without one, and once anew."""

    async def run(self, problem: Problem, url: str) -> str | None:
        async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:
            messages: list[Any] = [{"role": "user", "content": problem.question}]
            first = await client.chat.completions.create(model="policy", messages=messages, max_tokens=24)
            assert first.usage is not None
            assert first.usage.completion_tokens <= 24
            reply = first.choices[0].message
            messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": problem.question}]

            async def streamed() -> str:
                stream = await client.chat.completions.create(
                    model="policy", messages=messages, max_completion_tokens=40, stream=True, stop="Let"
                )
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

            async def whole() -> str:
                answer = await client.chat.completions.create(model="policy", messages=messages, max_tokens=40)
                return answer.choices[0].message.content or ""

            text, _ = await asyncio.gather(streamed(), whole())
            assert "Let" not in text
            await client.chat.completions.create(model="policy", messages=messages[-1:], max_tokens=8)
        return text


async def test_openais_client_asks_the_real_engine(
    engine: Any, tokenizer: Any, vocabulary: Any, encoder: Any, prompts: Any, tiny_model_directory: Path
) -> None:
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template = TEMPLATE
    end = frozenset({tokenizer.eos_token_id})
    settings = AgentSettings(AgentLimits(), PromptRenderer(tokenizer, encoder), 400)
    server = AgentServer()
    await server.start()
    try:
        own = player(
            engine, ScriptedInterpreter(), form=Documents(), vocabulary=vocabulary, encoder=encoder, end_token_ids=end
        )
        playing = AgentPlayer.from_player(own, AgentResources(Talk(), settings, server))
        groups = await play_all(playing, prompts[:4], 0, 3)
    finally:
        await server.close()
    rules = ReplayContext(Documents(), vocabulary, encoder, end, frozenset(), RolloutConfig(), end)
    assert len(groups) == 4
    for group in groups:
        for trajectory in group.trajectories:
            sequences = trajectory.episode_trajectories
            assert sorted(len(each.turns) for each in sequences) == [1, 1, 2]
            assert [agent_mismatch(each, rules) for each in sequences] == [None] * 3
            grown = next(each for each in sequences if len(each.turns) == 2)
            branch = next(each for each in sequences if len(each.prompt.token_ids) > len(grown.prompt.token_ids))
            shared = [*grown.prompt.token_ids, *grown.token_ids_T.tolist()]
            assert list(branch.prompt.token_ids) == shared[: len(branch.prompt.token_ids)]
            assert all(each.rollout_logprobs_T[each.loss_mask_T].max() <= 0 for each in sequences)
    assert any(
        each.turns[1].cached_tokens
        for group in groups
        for t in group.trajectories
        for each in t.episode_trajectories
        if len(each.turns) == 2
    )
