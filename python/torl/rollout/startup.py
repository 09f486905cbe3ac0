"""Startup of the components that play episodes: tools, environment, agent, engine and reward."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, Self, TypeAlias

from torl.base.component import RunContext
from torl.base.errors import ConfigError
from torl.base.options import Choice
from torl.base.runtime.cluster import Cluster, open_cluster
from torl.components.agents import Agent
from torl.components.engine import EngineSetup
from torl.components.environments import BoundedEnvironment, make_environment
from torl.components.formats import Format, require_chat_format
from torl.components.formats.format import tool_mismatch
from torl.components.rewards import Reward, make_reward
from torl.components.text.prompt_encoder import PromptEncoder
from torl.components.text.tokenizer import PlainTextEncoder, control_token_ids, stop_token_ids
from torl.components.text.vocabulary import build_vocabulary
from torl.components.tools import BaseTool, ShuffledTool, make_tool
from torl.rollout.agents.player import open_agent_player
from torl.rollout.environment import RunEnvironment
from torl.rollout.episode import EpisodePlayer
from torl.rollout.model_directory import ModelDirectory, schemas
from torl.rollout.slots import EpisodeSlots
from torl.run.config import ModelRunConfig
from torl.run.display.console import Console
from torl.run.placement.machine import Machine, combine_machines, this_machine
from torl.run.placement.resolve import ResolvedConfig, resolve, slow_precision


@dataclass(frozen=True, slots=True)
class Components:
    """The components of a run that users may write, before their start."""

    tools: Mapping[str, BaseTool]
    """The tools by the names of their sections."""
    environment: BoundedEnvironment | None
    agent: Agent | None
    reward: Reward
    evaluation_reward: Reward | None = None
    """The reward of evaluations. None for `reward`."""
    shuffle_observations: bool = False
    """Whether tools return the outcomes of other calls (`torl.components.tools.ShuffledTool`)."""

    @classmethod
    def from_config(cls, config: ModelRunConfig) -> Self:
        """Make the components that a configuration names.

        Raises:
            TorlError: The options of a component are invalid.
        """
        rollout = config.rollout
        return cls(
            tools={name: make_tool(name, choice) for name, choice in rollout.tools.items()},
            environment=None if rollout.environment is None else make_environment(rollout.environment),
            agent=None if rollout.agent is None else rollout.agent.make(),
            reward=make_reward(config.reward),
            evaluation_reward=None if config.evaluation_reward is None else make_reward(config.evaluation_reward),
        )


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The started components: a player with its engine and tools, and the reward."""

    player: EpisodePlayer
    reward: Reward
    evaluation_reward: Reward | None = None
    """The reward of evaluations. None for `reward`."""

    def watchers(self, stall_timeout_seconds: float) -> tuple[Coroutine[Any, Any, NoReturn], ...]:
        """Coroutines that raise when a component dies, or a call to one is pending for the timeout."""
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
    components: Components | None = None,
) -> AsyncIterator[Rollouts]:
    """Connect to the cluster of a configuration and start its components. All are closed with the block.

    Args:
        config: The configuration, whose unset placement is resolved here.
        model: The model of the engine.
        console: Console for the progress.
        log_directory: Directory for the engine's log.
        seed: Random seed of the run.
        components: The components. By default those of the configuration.

    Raises:
        TorlError: A component did not start.
    """
    async with open_cluster(config.cluster) as cluster:
        resolved = resolve(config, await machine_of(cluster))
        if warning := slow_precision(resolved):
            console.warning(warning)
        context = RunContext(cluster, seed=seed, directory=log_directory)
        components = components or Components.from_config(resolved.config)
        async with start_rollouts(resolved, model, console, context, components) as rollouts:
            yield rollouts


@asynccontextmanager
async def start_rollouts(
    resolved: ResolvedConfig[Any],
    model: ModelDirectory,
    console: Console,
    context: RunContext,
    components: Components,
    *,
    load_weights: bool = True,
) -> AsyncIterator[Rollouts]:
    """Start components on a cluster. All are closed with the block.

    Args:
        resolved: The configuration and its placement.
        model: The model of the engine.
        console: Console for the progress.
        context: The run.
        components: The components of the configuration.
        load_weights: Whether the engine loads the model's weights. Otherwise it waits for others.

    Raises:
        TorlError: A component did not start.
    """
    config: ModelRunConfig = resolved.config
    environment, agent = components.environment, components.agent
    rewards = [each for each in (components.reward, components.evaluation_reward) if each is not None]
    async with AsyncExitStack() as stack:
        tools: dict[str, BaseTool] = {}
        for section, tool in components.tools.items():
            provided = await _start_tool(stack, section, tool, context, console)
            _require_unique(f"rollout.tools.{section}", tools, provided)
            tools |= provided
        if environment is not None:
            if components.shuffle_observations:
                raise ConfigError("ablation.shuffle = 'observations' applies to tools only: remove rollout.environment")
            _require_unique("rollout.environment", tools, environment.tools)
            stack.push_async_callback(environment.close)
            with console.progress("starting the environment"):
                await environment.start(context)
        if components.shuffle_observations:
            tools = {name: ShuffledTool(tool, context.seed) for name, tool in tools.items()}
        parameters = {name: tool.parameters for name, tool in tools.items()}
        parameters |= {name: tool.parameters for name, tool in (environment.tools if environment else {}).items()}
        _require_supported(parameters, config.rollout.format)
        player = _make_player(resolved, model, tools, environment, context, load_weights=load_weights)
        if agent is not None:
            stack.push_async_callback(agent.close)
            with console.progress("starting the agent"):
                await agent.start(context)
            player = await open_agent_player(stack, player, agent, config, model.tokenizer)
        stack.push_async_callback(player.engine.close)
        for reward in rewards:
            stack.push_async_callback(reward.close)
        with console.progress("starting engine and reward"):
            async with asyncio.TaskGroup() as starts:
                starts.create_task(player.engine.start())
                for reward in rewards:
                    starts.create_task(reward.start(context))
        yield Rollouts(player, components.reward, components.evaluation_reward)


async def machine_of(cluster: Cluster) -> Machine:
    """Return the devices of all nodes of a cluster.

    Raises:
        ConfigError: The devices of a node cannot be used, or no reserved GPU is visible on a node.
        ClusterError: A node was lost.
    """
    machines = [await cluster.run_on(node, this_machine) for node in range(cluster.nodes)]
    for node, machine in enumerate(machines):
        if cluster.reserved_gpus and not machine.gpus:
            raise ConfigError(
                f"node {node} of the cluster has {cluster.reserved_gpus} GPUs, but torl's processes see none: where "
                "Ray is started, set RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=0 and unset CUDA_VISIBLE_DEVICES, or pass "
                "--num-gpus 0 to compute on the cores"
            )
    return combine_machines(machines)


async def _start_tool(
    stack: AsyncExitStack, section: str, tool: BaseTool, context: RunContext, console: Console
) -> Mapping[str, BaseTool]:
    """Start a tool; return the tools that it provides."""
    stack.push_async_callback(tool.close)
    with console.progress(f"starting the tool {section!r}", 1.0) as progress:
        await tool.start(replace(context, progress=lambda _, fraction: progress.update(completed=fraction)))
    return tool.provided_tools(section)


def _require_unique(section: str, tools: Mapping[str, object], provided: Mapping[str, object]) -> None:
    if duplicates := tools.keys() & provided.keys():
        raise ConfigError(f"{section} provides a second tool with the name {min(duplicates)!r}; rename one")


def _require_supported(tools: Mapping[str, object], choice: Choice[Format]) -> None:
    """Raise `ConfigError` for a tool that the run's format cannot call. `tools` holds their arguments' JSON schemas."""
    form = choice.make()
    for tool, parameters in tools.items():
        if reason := tool_mismatch(form, tool, parameters):
            raise ConfigError(
                f"rollout.format = {choice.name!r} cannot call the tool {tool!r}: {reason}; rename the tool, remove it "
                "(a tool of an MCP server by listing the others in `tools`), or choose another format"
            )


def _make_player(
    resolved: ResolvedConfig[Any],
    model: ModelDirectory,
    tools: Mapping[str, BaseTool],
    environment: BoundedEnvironment | None,
    context: RunContext,
    *,
    load_weights: bool,
) -> EpisodePlayer:
    """Make a player whose engine is not started.

    Raises:
        DataError: The tokenizer lacks an end-of-sequence token or a token of the format, or cannot encode observations.
    """
    config: ModelRunConfig = resolved.config
    rollout, cluster = config.rollout, context.cluster
    format: Format = rollout.format.make()
    control_token_ids(model.tokenizer, format.control_tokens)
    end_token_ids = frozenset(control_token_ids(model.tokenizer, format.end_tokens))
    vocabulary = build_vocabulary(model.tokenizer, format.visible_tokens)
    encoder = PlainTextEncoder(model.tokenizer, vocabulary)
    assert rollout.max_concurrent_episodes is not None  # resolved
    setup = EngineSetup(
        model=model.path,
        vocabulary=vocabulary,
        max_model_tokens=config.longest_prompt + config.longest_response,
        stop_token_ids=tuple(stop_token_ids(model.path, model.tokenizer, format.end_tokens)),
        log_path=context.directory / "engine.log",
        load_weights=load_weights,
        seed=context.seed,
        head_dtype=config.model.head_dtype,
        devices=resolved.placement.engine_device_ids,
        on_gpus=bool(resolved.placement.machine.gpus),
        cluster=cluster,
        nodes=resolved.placement.engine_nodes if cluster.is_remote else (),
        stall_timeout_seconds=rollout.stall_timeout_seconds / 2,  # an engine is restarted before the run is aborted
        max_restarts=config.cluster.max_restarts,
    )
    run_environment = None
    if environment is not None:
        run_environment = RunEnvironment(
            bounded=environment,
            format=require_chat_format(format),
            prompts=PromptEncoder(model.tokenizer, encoder),
            template=config.data.template.bind(),
            tools=schemas([tools, environment.tools]),
            max_prompt_tokens=config.longest_prompt,
        )
    return EpisodePlayer(
        engine=config.engine.make(setup),
        tools=tools,
        vocabulary=vocabulary,
        encoder=encoder,
        format=format,
        settings=rollout,
        slots=EpisodeSlots(rollout.max_concurrent_episodes),
        end_token_ids=end_token_ids,
        environment=run_environment,
        seed=context.seed,
    )
