"""Train a language model to reason with a Python interpreter.

    python -m torl.train CONFIG [--section.field value ...]

`Run.train` below is the whole of it: problems, episodes, rewards, advantages, one optimizer step, new weights in the
engine, measurements, checkpoints. It knows no algorithm; the parts it calls do.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from torl.config import TrainConfig
from torl.errors import ConfigError
from torl.evaluate import evaluate
from torl.experience import Experience, PlayedStep
from torl.run_directory import open_run_directory, write_summary
from torl.settings import parse_command_line
from torl.supervision import run_until_done, watched
from torl.types import Float32Array, Prompt, TrainingSample, Trajectory

if TYPE_CHECKING:
    from torl.data.sampler import PromptSampler
    from torl.learner.learner import Learner
    from torl.metrics.console import Console, Wait
    from torl.metrics.writers import RunWriter
    from torl.reward.grader import GraderPool
    from torl.rollout.episode import EpisodePlayer
    from torl.sandbox import Interpreter, SandboxPool


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status (see `torl.supervision.run_until_done`; 2: wrong configuration)."""
    description = "Train a language model to reason with a Python interpreter."
    try:
        config = parse_command_line(
            TrainConfig, "python -m torl.train", description, sys.argv[1:] if arguments is None else arguments
        )
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    from torl.learner.torchrun import is_secondary_rank, serve_rank

    if is_secondary_rank():
        return serve_rank()
    return run_until_done(train(config))


async def train(config: TrainConfig) -> None:
    """Run `config` to its last step, then print the summary as one line of JSON.

    Raises:
        TorlError: what was wrong with the configuration, the data or a part; everything written so far is kept.
    """
    from torl.metrics.console import Console

    directory = open_run_directory(config)
    with Console() as console:
        async with _open_run(config, directory, console) as run:
            await watched(run.train(), run.player.engine.watch())
        summary = write_summary(directory)
        console.line(f"report: {summary['report']}")
    print(json.dumps(summary), flush=True)


@dataclass(slots=True)
class Run:
    """A run with all its parts started."""

    config: TrainConfig
    directory: Path
    console: "Console"
    sampler: "PromptSampler"
    evaluation_sets: Mapping[str, Sequence[Prompt]]
    sandbox: "SandboxPool"
    grader: "GraderPool"
    player: "EpisodePlayer"
    experience: Experience
    learner: "Learner"
    writer: "RunWriter"
    first_step: int

    async def train(self) -> None:
        """The loop."""
        from torl.algorithms.samples import training_samples, with_advantages
        from torl.algorithms.selection import silenced, without_loss
        from torl.metrics import names
        from torl.metrics.dynamics import staleness, training_dynamics
        from torl.metrics.report import write_report

        config, steps, experience = self.config, self.config.run.steps, self.experience
        idle_seconds = self.player.engine.idle_seconds
        async with aclosing(experience.steps(self.first_step)) as played_steps:
            for step in range(self.first_step, steps):
                await self._evaluate_if_due(step)
                metrics: dict[str, float] = {}
                with _timed(metrics, names.TIME_STEP):
                    # --- rollout: episodes of every prompt, each at its own pace, and what they are worth -----------
                    with _timed(metrics, names.TIME_WAIT):
                        played = await anext(played_steps)
                    metrics[names.TIME_ROLLOUT] = played.seconds
                    metrics |= training_dynamics(played.trajectories, played.grades) | played.counts
                    metrics |= staleness(played.trajectories, step)

                    # --- learn: advantages within groups, then the optimizer steps ----------------------------------
                    trajectories, rewards, groups = played.batch()
                    grades = [played.grades[index] for index in played.kept]
                    silent = await asyncio.to_thread(silenced, trajectories, grades, config.selection)
                    metrics |= {names.masked(reason): len(found) for reason, found in silent.items()}
                    metrics[names.TRAINED_GROUPS] = len(set(groups))
                    samples = training_samples(trajectories)
                    for index in set().union(*silent.values()):
                        samples[index] = without_loss(samples[index])
                    with _timed(metrics, names.TIME_LEARN):
                        await self._share_devices_with_learner()
                        samples = await self.learner.prepare(samples)
                        samples = with_advantages(samples, rewards, groups, config.algorithm)
                        metrics |= names.learner(await self.learner.update(samples, step=step))
                    await asyncio.to_thread(self._write_trajectories, step, played, samples)

                    # --- weights: the engine samples on with what was learned ---------------------------------------
                    with _timed(metrics, names.TIME_SYNC):
                        await self.synchronise_weights(policy_version=step + 1)
                        experience.advance(step + 1)

                # --- records ----------------------------------------------------------------------------------------
                metrics[names.EPOCH] = self.sampler.epoch
                metrics[names.TIME_ENGINE_IDLE] = self.player.engine.idle_seconds - idle_seconds
                idle_seconds = self.player.engine.idle_seconds
                counters = self.player.counters.tool
                metrics |= names.speculation(counters.speculated, counters.wasted)
                metrics |= names.sandbox(self.sandbox.stats())
                self.writer.write_metrics(step, metrics)
                self.console.step(step + 1, steps, metrics)
                if _due(step + 1, config.checkpoint.every_steps) and step + 1 < steps:
                    await self._save_checkpoint(step + 1)
                    write_report(self.directory, config.run.note)

        await self._evaluate_if_due(steps)
        await self._save_checkpoint(steps)
        with self.console.wait("exporting the model"):
            await self.learner.export(self.directory / "model")
        write_report(self.directory, config.run.note)

    def _write_trajectories(self, step: int, played: "PlayedStep", samples: Sequence[TrainingSample]) -> None:
        """All that were played, those that were learned from with their advantages and what these were made of."""
        from torl.algorithms.samples import mean_advantage, token_numbers

        advantages: list[float | None] = [None] * len(played.trajectories)
        numbers: list[Mapping[str, Float32Array]] = [{}] * len(played.trajectories)
        for index, sample in zip(played.kept, samples, strict=True):
            advantages[index] = mean_advantage(sample)
            numbers[index] = token_numbers(sample, len(played.trajectories[index]), self.config.algorithm)
        self.writer.write_trajectories(step, played.trajectories, played.grades, advantages, numbers)

    async def _share_devices_with_learner(self) -> None:
        """The engine gives the GPUs' memory to the learner, where they share it."""
        await self.player.engine.sleep()
        if self.config.learner.offload_while_sampling:
            await self.learner.onload()

    async def synchronise_weights(self, policy_version: int) -> None:
        """Put the learner's weights into the engine, as `policy_version`; gives the devices back to the engine."""
        engine = self.player.engine
        await engine.wake()
        workers = self.config.engine.tensor_parallel * self.config.engine.data_parallel
        rendezvous = await self.learner.open_channel(1 + workers)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.learner.send_weights(rendezvous, checksum=self.config.engine.verify_weights))
            tasks.create_task(engine.receive_weights(rendezvous, policy_version))
        if self.config.learner.offload_while_sampling:
            await self.learner.offload()

    async def _evaluate_if_due(self, step: int) -> None:
        """Evaluate the policy after `step` updates: before the first, after the last, and as often as configured."""
        from torl.metrics import names

        config = self.config.evaluation
        if not (step in (0, self.config.run.steps) or _due(step, config.every_steps)):
            return
        metrics: dict[str, float] = {}
        with _timed(metrics, names.TIME_EVALUATION):
            for name, prompts in self.evaluation_sets.items():
                with self.console.wait(f"evaluating {name}", config.episodes(len(prompts))) as wait:
                    found = await evaluate(
                        self.player,
                        self.grader,
                        prompts,
                        config,
                        name=name,
                        on_episode=partial(_advance, wait),
                    )
                metrics |= names.evaluation(name, found.metrics)
                await asyncio.to_thread(
                    self.writer.write_trajectories, step, found.trajectories, found.grades, evaluation_set=name
                )
                self.console.evaluation(step, name, found.metrics)
        self.writer.write_metrics(step, metrics)

    async def _save_checkpoint(self, step: int) -> None:
        from torl.learner.checkpoint import checkpoint_path, prune_checkpoints
        from torl.metrics import names

        metrics: dict[str, float] = {}
        with _timed(metrics, names.TIME_CHECKPOINT), self.console.wait("writing a checkpoint"):
            state = {"step": step, "sampler": self.experience.position(step)}
            await self.learner.save_checkpoint(checkpoint_path(self.directory, step), state)
            prune_checkpoints(self.directory, self.config.checkpoint.keep)
        self.writer.write_metrics(step, metrics)


@asynccontextmanager
async def _open_run(config: TrainConfig, directory: Path, console: "Console") -> AsyncIterator[Run]:
    """Read everything that can be wrong, then start the parts, all at once; they end with the block."""
    from torl.data.paths import resolve_path
    from torl.data.problems import load_problems
    from torl.data.prompts import encode_prompts
    from torl.data.sampler import PromptSampler
    from torl.learner.checkpoint import latest_checkpoint, read_controller_state
    from torl.metrics.writers import RunWriter
    from torl.reward.grader import GraderPool
    from torl.rollout.assemble import open_player, open_sandbox
    from torl.rollout.controls import ShuffledInterpreter
    from torl.rollout.tokenizer import load_tokenizer

    model = resolve_path(config.model.path)
    tokenizer = load_tokenizer(model)

    def read(name: str, path: str) -> tuple[Prompt, ...]:
        encoded = encode_prompts(load_problems(path), tokenizer, config.data.template, config.data.max_prompt_tokens)
        dropped = f", {len(encoded.too_long)} too long and dropped" if encoded.too_long else ""
        console.line(f"{name}: {len(encoded.prompts)} problems{dropped}")
        return encoded.prompts

    sampler = PromptSampler(read("train", config.data.train), config.run.seed)
    if config.rollout.prompts_per_step > len(sampler):
        raise ConfigError(
            f"rollout.prompts_per_step is {config.rollout.prompts_per_step}, but data.train has {len(sampler)} problems"
        )
    evaluation_sets = {name: read(name, path) for name, path in config.data.evaluation.items()}
    checkpoint = latest_checkpoint(directory) if config.run.resume else None
    first_step = 0
    if checkpoint is not None:
        state = read_controller_state(checkpoint)
        first_step = state["step"]
        sampler.load_state_dict(state["sampler"])
        console.line(f"resuming from {checkpoint}")
    elif config.run.resume:
        console.warning(f"{directory} has no checkpoint yet: starting at the first step")
    logs = directory / "logs"

    async with AsyncExitStack() as stack:
        resume_step = first_step if config.run.resume else None
        writer = stack.enter_context(RunWriter(directory, resume_step=resume_step))
        with console.wait("preparing the sandbox", 1.0) as wait:
            sandbox = await stack.enter_async_context(
                open_sandbox(config.sandbox, lambda _, share: wait.update(completed=share))
            )
        interpreter: Interpreter = sandbox
        if config.control.shuffle_observations:
            interpreter = ShuffledInterpreter(sandbox, config.run.seed)
        with console.wait("starting engine, learner and graders"):
            async with asyncio.TaskGroup() as starts:
                grader = starts.create_task(stack.enter_async_context(GraderPool.from_config(config.reward)))
                player = starts.create_task(
                    stack.enter_async_context(
                        open_player(
                            model,
                            tokenizer,
                            interpreter,
                            rollout=config.rollout,
                            engine=config.engine,
                            max_prompt_tokens=config.data.max_prompt_tokens,
                            seed=config.run.seed,
                            log_directory=logs,
                        )
                    )
                )
                learner = starts.create_task(_open_learner(stack, config, model, logs))
        run = Run(
            config=config,
            directory=directory,
            console=console,
            sampler=sampler,
            evaluation_sets=evaluation_sets,
            sandbox=sandbox,
            grader=grader.result(),
            player=player.result(),
            experience=Experience(config, sampler, player.result(), grader.result(), sandbox, console),
            learner=learner.result(),
            writer=writer,
            first_step=first_step,
        )
        if checkpoint is not None:
            await run.learner.load_checkpoint(checkpoint)
            await run.synchronise_weights(policy_version=first_step)
        yield run


async def _open_learner(stack: AsyncExitStack, config: TrainConfig, model: Path, log_directory: Path) -> "Learner":
    from torl.data.paths import resolve_path
    from torl.learner.learner import Learner

    critic = None if config.critic.path is None else str(resolve_path(config.critic.path))
    learner = await Learner.start(
        model=config.model.model_copy(update={"path": str(model)}),
        learner=config.learner,
        algorithm=config.algorithm,
        critic=config.critic.model_copy(update={"path": critic}),
        temperature=config.rollout.temperature,
        total_steps=config.run.steps,
        seed=config.run.seed,
        log_directory=log_directory,
    )
    return await stack.enter_async_context(learner)


def _advance(wait: "Wait", _: Trajectory) -> None:
    wait.advance()


def _due(step: int, every_steps: int) -> bool:
    return every_steps > 0 and step % every_steps == 0


@contextmanager
def _timed(metrics: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    metrics[name] = time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
