"""One door: from a configuration to the running parts that play episodes and say what they are worth."""

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
    """The running parts that play problems: the player with its engine and tools, and the reward."""

    player: EpisodePlayer
    reward: Reward

    def watchers(self, stall_timeout_seconds: float) -> tuple[Coroutine[Any, Any, NoReturn], ...]:
        """To run beside what is done with the parts: they raise when one has died or gives no answer for so long."""
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
    """Start tools, engine and reward, each with progress; all are closed at the end, however that comes.

    Args:
        config: of any command; what it leaves to the devices is settled here.
        model: that the engine loads.
        console: says what is waited for.
        log_directory: of the engine's log.
        seed: of the run.
        shuffle_observations: the control experiment of `torl.tools.ShuffledTool`.
        cluster: where they are started; that of the configuration when unset.
        machine: whose devices the engine has; the cluster's when unset.
        loads_weights: whether the engine begins with the model's weights; where not, it waits for others.
        made: of the configuration; made here when unset.

    Raises:
        TorlError: a part did not start; says which and why.
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
                raise ConfigError(f"rollout.tools.{name} brings a second tool that is called {min(twice)!r}")
            tools |= offered
        if (bounded := made.environment) is not None:
            if shuffle_observations:
                raise ConfigError(
                    "ablation.shuffle_observations shuffles what tools say: leave rollout.environment out"
                )
            if twice := tools.keys() & bounded.tools.keys():
                raise ConfigError(f"rollout.environment brings a second tool that is called {min(twice)!r}")
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
    """The devices of all nodes of a cluster.

    Raises:
        ConfigError: those of a node cannot be used as they are.
        ClusterError: a node was lost.
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
    """Raise `ConfigError` for a tool that calls of the run's format have no place for."""
    form = choice.make()
    if unwritten := [tool for tool in tools if form.tools is not None and tool not in form.tools]:
        raise ConfigError(
            f"the format {form.name!r} cannot write a call of the tool {unwritten[0]!r}: give it another name, or "
            "leave it out (of an MCP server by naming the others in `tools`)"
        )


def make_run_environment(
    config: ModelRunConfig, model: ModelDirectory, bounded: BoundedEnvironment, player: EpisodePlayer
) -> RunEnvironment:
    """The environment as episodes of a run see it, beside the player's tools."""
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
    """A player whose engine is not yet started.

    Raises:
        DataError: the tokenizer has no end-of-sequence token, lacks one of the format, or cannot encode observations.
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
