"""rollout.agent: which programs a configuration can name, and what goes with them."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from pydantic import ValidationError

from agent_programs import TEMPLATE, agent_player
from chat_models import ChatModel
from torl.base.errors import ConfigError, DataError
from torl.components.agents import AgentLimits
from torl.components.agents.programs import CommandAgent
from torl.rollout.agents.player import open_agent_player
from torl.run.config import SampleConfig
from torl.run.config.loading import find_config, load_config

MODEL = ChatModel.of("hermes")
SAMPLE = {"sample.problems": "p.jsonl", "sample.output": "o.jsonl"}


def configured(**options: str) -> SampleConfig:
    overrides = {name.replace("__", "."): value for name, value in options.items()}
    return load_config(SampleConfig, find_config("demo"), {**SAMPLE, **overrides})


def test_agent_has_limits_and_options_and_drops_the_presets_tools() -> None:
    config = configured(rollout__format="hermes", rollout__agent__command="cat", rollout__agent__timeout_seconds="5")
    agent = config.rollout.agent
    assert agent is not None
    assert agent.target is CommandAgent
    assert isinstance(agent.common_options, AgentLimits)
    assert (agent.common_options.timeout_seconds, agent.common_options.on_failure) == (5, "drop")
    assert config.rollout.tools == {}
    again = SampleConfig.model_validate(config.model_dump(mode="json", exclude_none=True))
    assert again.rollout.agent is not None
    assert again.rollout.agent.dump() == agent.dump()


def test_an_agent_needs_a_chat_models_format() -> None:
    with pytest.raises(ConfigError, match="agent requires the format of a chat model: choose "):
        configured(rollout__agent__command="cat")


def test_an_agent_and_an_environment_are_one_too_many() -> None:
    environment = {"rollout__environment__name": "scripted_environment:Chosen"}
    with pytest.raises(ConfigError, match="cannot be combined: remove one"):
        configured(rollout__format="hermes", rollout__agent__command="cat", **environment)


def test_limits_are_checked() -> None:
    with pytest.raises(ValidationError):
        AgentLimits.model_validate({"on_failure": "ignore"})


async def _opened(template: str | None) -> Any:
    player = agent_player(MODEL, lambda _: [])
    MODEL.tokenizer.chat_template = template
    config = configured(
        rollout__format="hermes",
        rollout__agent__command="cat",
        data__template="{ name = 'chat', variables = { a = 1 } }",
    )
    async with AsyncExitStack() as stack:
        return await open_agent_player(stack, player, player.agents.agent, config, MODEL.tokenizer)


def test_missing_chat_template_is_an_error() -> None:
    with pytest.raises(DataError, match=r"no chat template.*chat_template\.jinja"):
        asyncio.run(_opened(None))


def test_prompts_have_the_variables_of_the_runs_template() -> None:
    player = asyncio.run(_opened(f"{TEMPLATE}{{{{ a }}}}"))
    tokens = player.agents.settings.renderer.render([{"role": "user", "content": "?"}], ())
    assert MODEL.tokenizer.decode(tokens).endswith("assistant\n1")
    assert player.agents.settings.max_prompt_tokens == 400
