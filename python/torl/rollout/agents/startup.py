"""From a player of torl's own loop to one of agent programs."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from torl.agents import Agent, AgentLimits
from torl.config import ModelRunConfig
from torl.errors import DataError
from torl.rollout.agents.episode import AgentSettings
from torl.rollout.agents.open_files import connection_limit
from torl.rollout.agents.player import AgentPlayer, AgentResources
from torl.rollout.agents.prompts import PromptRenderer
from torl.rollout.agents.server import AgentServer
from torl.rollout.episode import EpisodePlayer
from torl.text.templates import Conversation
from torl.types import Problem

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


_MIN_BYTES = 4 << 20  # of the largest request: schemas of tools, and what templates do not read
_BYTES_OF_A_TOKEN = 64  # of them, much more than text has, escaped and with its thoughts


async def open_agent_player(
    stack: AsyncExitStack,
    player: EpisodePlayer,
    agent: Agent,
    config: ModelRunConfig,
    tokenizer: "PreTrainedTokenizerFast",
) -> AgentPlayer:
    """A player of the agent, whose address is open until the stack ends.

    Raises:
        ConfigError: there is no room for so many.
        DataError: the model's tokenizer has no chat template.
        EngineError: no address can be had.
    """
    choice = config.rollout.agent
    assert choice is not None
    assert isinstance(choice.common_options, AgentLimits)
    if not getattr(tokenizer, "chat_template", None):
        raise DataError(
            "the model's tokenizer has no chat template, which makes prompts of what agent programs say: put the "
            "chat_template.jinja of its family beside the tokenizer"
        )
    window = config.longest_prompt + config.rollout.max_response_tokens
    door = AgentServer(
        max(_MIN_BYTES, _BYTES_OF_A_TOKEN * window), connection_limit(choice.common_options.max_concurrent)
    )
    stack.push_async_callback(door.close)
    await door.start()
    renderer = PromptRenderer(tokenizer, player.encoder, _template_variables(config))
    settings = AgentSettings(choice.common_options, renderer, window)
    return AgentPlayer.from_player(player, AgentResources(agent, settings, door))


def _template_variables(config: ModelRunConfig) -> Mapping[str, Any]:
    """Those that the run's template gives to the model's own, whatever the problem is."""
    conversation = config.data.template.bind()(Problem("", "", ""))
    return conversation.variables if isinstance(conversation, Conversation) else {}
