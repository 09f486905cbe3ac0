"""Start the tools, the environment, the engine and the reward of a configuration."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from torl.component import RunContext
from torl.config import ModelRunConfig
from torl.engine import EngineSetup
from torl.environments import BoundedEnvironment
from torl.errors import ConfigError
from torl.formats import ChatFormat, Format
from torl.options import Choice
from torl.placement.machine import Machine, combine_machines, this_machine
from torl.placement.resolve import ResolvedConfig, resolve
from torl.report.console import Console
from torl.rewards import Reward
from torl.rollout.agents.startup import open_agent_player
from torl.rollout.components import Components
from torl.rollout.environment import RunEnvironment
from torl.rollout.episode import EpisodePlayer
from torl.rollout.model_directory import ModelDirectory, schemas
from torl.rollout.settings import EpisodeSettings
from torl.rollout.slots import EpisodeSlots
from torl.runtime.cluster import Cluster, open_cluster
from torl.text.prompt_encoder import PromptEncoder
from torl.text.tokenizer import PlainTextEncoder, control_token_ids, stop_token_ids
from torl.text.vocabulary import build_vocabulary
from torl.tools import BaseTool, ShuffledTool


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The running components: the player with its engine and tools, and the reward."""

    player: EpisodePlayer
    reward: Reward

    def watchers(self, stall_timeout_seconds: float) -> tuple[Coroutine[Any, Any, NoReturn], ...]:
        """Return coroutines that raise when a component has died, or has not replied within the timeout."""
        return self.player.engine.watch(), self.player.open_calls.watch(
            stall_timeout_seconds, "rollout.stall_timeout_seconds"
        )


OpenRollouts: TypeAlias = Callable[[], AbstractAsyncContextManager[Rollouts]]
"""Starts rollouts, or lends running ones."""


@asynccontextmanager
async def open_rollouts(
    config: ModelRunConfig,
    model: ModelDirectory,
    console: Console,
    *,
    log_directory: Path,
    seed: int = 0,
    shuffle_observations: bool = False,
    cluster: Cluster | None = None,
    machine: Machine | None = None,
    loads_weights: bool = True,
    made: Components | None = None,
) -> AsyncIterator[Rollouts]:
    """Start the components with progress, and close them at the end.

    Args:
        config: Configuration of any command. Settings that depend on the devices are resolved here.
        model: Model that the engine loads.
        console: Console for the progress.
        log_directory: Directory of the engine's log.
        seed: Random seed of the run.
        shuffle_observations: Whether to wrap the tools in `torl.tools.ShuffledTool`, an ablation.
        cluster: Cluster to start them on. Default: the cluster of the configuration.
        machine: Machine with the engine's devices. Default: the machine of the cluster.
        loads_weights: Whether the engine loads the model's weights. Otherwise it waits for a weight update.
        made: Components of the configuration. Default: made here.

    Raises:
        TorlError: A component did not start.
    """
    async with AsyncExitStack() as stack:
        if cluster is None:
            cluster = await stack.enter_async_context(open_cluster(config.cluster))
        settled = resolve(config, machine or await machine_of(cluster))
        config = settled.config
        made = made or Components.from_config(config)
        context = RunContext(cluster, seed=seed, directory=log_directory)
        tools: dict[str, BaseTool] = {}
        for name, tool in made.tools.items():
            offered = await _start_tool(stack, name, tool, context, console)
            if twice := tools.keys() & offered.keys():
                raise ConfigError(
                    f"rollout.tools.{name} provides a second tool with the name {min(twice)!r}; rename one"
                )
            tools |= offered
        if (bounded := made.environment) is not None:
            if shuffle_observations:
                raise ConfigError("ablation.shuffle_observations applies to tools only; remove rollout.environment")
            if twice := tools.keys() & bounded.tools.keys():
                raise ConfigError(
                    f"rollout.environment provides a second tool with the name {min(twice)!r}; rename one"
                )
            stack.push_async_callback(bounded.close)
            with console.progress("starting the environment"):
                await bounded.start(context)
        if shuffle_observations:
            tools = {name: ShuffledTool(tool, seed) for name, tool in tools.items()}
        others = {} if bounded is None else bounded.tools
        require_supported_tools((*tools, *others), config.rollout.format)
        player = make_player(
            settled, model, tools, log_directory=log_directory, seed=seed, cluster=cluster, loads_weights=loads_weights
        )
        if bounded is not None:
            player.environment = make_run_environment(config, model, bounded, player)
        if made.agent is not None:
            stack.push_async_callback(made.agent.close)
            with console.progress("starting the agent"):
                await made.agent.start(context)
            player = await open_agent_player(stack, player, made.agent, config, model.tokenizer)
        reward = made.reward
        stack.push_async_callback(player.engine.close)
        stack.push_async_callback(reward.close)
        with console.progress("starting engine and reward"):
            async with asyncio.TaskGroup() as starts:
                starts.create_task(player.engine.start())
                starts.create_task(reward.start(context))
        yield Rollouts(player, reward)


async def machine_of(cluster: Cluster) -> Machine:
    """Return the devices of all nodes of a cluster.

    Raises:
        ConfigError: The devices of a node cannot be used.
        ClusterError: A node was lost.
    """
    return combine_machines([await cluster.run_on(node, this_machine) for node in range(cluster.nodes)])


async def _start_tool(
    stack: AsyncExitStack, name: str, tool: BaseTool, context: RunContext, console: Console
) -> Mapping[str, BaseTool]:
    stack.push_async_callback(tool.close)
    with console.progress(f"starting the tool {name!r}", 1.0) as wait:
        await tool.start(replace(context, progress=lambda _, fraction: wait.update(completed=fraction)))
    return tool.provided_tools(name)


def require_supported_tools(tools: Iterable[str], choice: Choice[Format]) -> None:
    """Refuse a format that cannot call a tool of the run.

    Raises:
        ConfigError: The format cannot call one of the tools.
    """
    format = choice.make()
    if unsupported := [tool for tool in tools if not format.supports_tool(tool)]:
        raise ConfigError(
            f"rollout.format = {choice.name!r} cannot call the tool {unsupported[0]!r}; rename the tool, remove it (a "
            "tool of an MCP server by listing the others in `tools`), or choose another format"
        )


def make_run_environment(
    config: ModelRunConfig, model: ModelDirectory, bounded: BoundedEnvironment, player: EpisodePlayer
) -> RunEnvironment:
    """Make the environment of the episodes of a run."""
    form = player.format
    assert isinstance(form, ChatFormat)  # as the configuration says
    return RunEnvironment(
        bounded=bounded,
        format=form,
        prompts=PromptEncoder(model.tokenizer, player.encoder),
        template=config.data.template.bind(),
        tools=schemas([player.tools, bounded.tools]),
        max_prompt_tokens=config.longest_prompt,
    )


def make_player(
    settled: ResolvedConfig[ModelRunConfig],
    model: ModelDirectory,
    tools: Mapping[str, BaseTool],
    *,
    log_directory: Path,
    seed: int,
    cluster: Cluster,
    loads_weights: bool = True,
) -> EpisodePlayer:
    """Make a player. Its engine is not started.

    Raises:
        DataError: The tokenizer lacks an end-of-sequence token or a token of the format, or cannot encode observations.
    """
    config = settled.config
    rollout = config.rollout
    format: Format = rollout.format.make()
    control_token_ids(model.tokenizer, format.control_tokens)
    end_token_ids = frozenset(control_token_ids(model.tokenizer, format.end_tokens))
    vocabulary = build_vocabulary(model.tokenizer, format.visible_tokens)
    assert rollout.max_concurrent_episodes is not None  # settled
    setup = EngineSetup(
        model=model.path,
        vocabulary=vocabulary,
        max_model_tokens=config.longest_prompt + rollout.max_response_tokens,
        stop_token_ids=tuple(sorted({*stop_token_ids(model.path, model.tokenizer), *end_token_ids})),
        log_path=log_directory / "engine.log",
        load_weights=loads_weights,
        seed=seed,
        head_dtype=config.model.head_dtype,
        devices=settled.placement.engine_device_ids,
        cluster=cluster,
        nodes=settled.placement.engine_nodes if cluster.is_remote else (),
    )
    return EpisodePlayer(
        engine=config.engine.make(setup),
        tools=tools,
        vocabulary=vocabulary,
        encoder=PlainTextEncoder(model.tokenizer, vocabulary),
        format=format,
        settings=EpisodeSettings.from_config(rollout, seed),
        slots=EpisodeSlots(rollout.max_concurrent_episodes),
        end_token_ids=end_token_ids,
    )
