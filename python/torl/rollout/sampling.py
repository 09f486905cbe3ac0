"""Problems in, trajectories out: the `rollout` command, and the same as a Python call."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError

from torl.config import RolloutCommandConfig
from torl.errors import ConfigError, DataError
from torl.settings import dump_config
from torl.supervision import first_error, watched
from torl.types import Grade, Problem, Prompt, Trajectory

STEP = 0


def rollout(
    model: str | Path,
    problems: str | Path | Sequence[str | Problem],
    *,
    samples: int = 1,
    output: str | Path | None = None,
    seed: int = 0,
    **sections: Mapping[str, Any],
) -> list[Trajectory]:
    """Sample trajectories of a model and return them, in the order of the problems. For scripts and notebooks.

    Args:
        model: directory of a Hugging Face causal language model.
        problems: a problem file, or questions.
        samples: trajectories for each problem.
        output: file to write them to as they end, and to go on from; none when unset.
        sections: settings by section, as in a configuration file: `rollout={"max_tool_calls": 2}, engine={...}`.

    Raises:
        TorlError: the settings, the problems, the model or a part are not as they should be.
    """
    with TemporaryDirectory(prefix="torl-rollout-") as scratch:
        if not isinstance(problems, str | Path):
            problems = _write_problems(Path(scratch) / "problems.jsonl", problems)
        sample = {
            "problems": str(problems),
            "output": output or Path(scratch) / "trajectories.jsonl",
            "samples": samples,
            "seed": seed,
        }
        try:
            config = RolloutCommandConfig.model_validate({"model": {"path": str(model)}, "sample": sample, **sections})
        except ValidationError as error:
            raise ConfigError(str(error)) from error
        if unknown := sections.keys() - RolloutCommandConfig.model_fields:
            raise ConfigError(f"there is no section {min(unknown)!r}")
        found: list[Trajectory] = []
        failures: list[BaseException] = []

        def work() -> None:
            try:
                found.extend(asyncio.run(sample_to_file(config)))
            except BaseException as error:
                failures.append(error)

        # In a thread, because a notebook runs an event loop of its own.
        thread = threading.Thread(target=work, name="torl-rollout")
        thread.start()
        thread.join()
        if failures:
            raise first_error(failures[0])
        return found


async def sample_to_file(config: RolloutCommandConfig) -> list[Trajectory]:
    """Play what the output file does not hold yet, add each group to it as it ends, print a line of JSON; return all.

    Raises:
        ConfigError: the output file was made with other settings.
        TorlError: something else is not as it should be; what was written is kept.
    """
    from torl.data.paths import resolve_path
    from torl.data.problems import load_problems
    from torl.data.prompts import encode_prompts
    from torl.metrics.console import Console
    from torl.metrics.dynamics import training_dynamics
    from torl.reward.grader import GraderPool
    from torl.rollout.assemble import open_player, open_sandbox, within_context
    from torl.rollout.scheduler import play_groups
    from torl.rollout.tokenizer import load_tokenizer

    sample = config.sample
    model = resolve_path(config.model.path)
    tokenizer = load_tokenizer(model)
    problems = load_problems(sample.problems)[: sample.max_problems]
    encoded = encode_prompts(problems, tokenizer, config.data.template, config.data.max_prompt_tokens)
    _check_settings(config)
    done = _go_on(sample.output, sample.samples)
    waiting = [prompt for prompt in encoded.prompts if prompt.problem.id not in done]
    async with AsyncExitStack() as stack:
        console = stack.enter_context(Console())
        console.line(
            f"{len(encoded.prompts)} problems, {len(encoded.too_long)} too long and dropped, "
            f"{len(encoded.prompts) - len(waiting)} done before"
        )
        if waiting:
            logs = Path(stack.enter_context(TemporaryDirectory(prefix="torl-rollout-")))
            with console.wait("preparing the sandbox", 1.0) as wait:
                sandbox = await stack.enter_async_context(
                    open_sandbox(config.sandbox, lambda _, share: wait.update(completed=share))
                )
            with console.wait("starting engine and graders"):
                grader = await stack.enter_async_context(GraderPool.from_config(config.reward))
                player = await stack.enter_async_context(
                    open_player(
                        model,
                        tokenizer,
                        sandbox,
                        rollout=within_context(config.rollout, model, config.data.max_prompt_tokens),
                        engine=config.engine,
                        max_prompt_tokens=config.data.max_prompt_tokens,
                        seed=sample.seed,
                        log_directory=logs,
                    )
                )

            async def play() -> None:
                with console.wait("episodes", len(waiting) * sample.samples) as wait:
                    groups = play_groups(
                        player,
                        waiting,
                        step=STEP,
                        samples_per_prompt=sample.samples,
                        on_episode=lambda _: wait.advance(),
                    )
                    async with aclosing(groups):
                        async for group in groups:
                            grades = await grader.grade_batch(group)
                            await asyncio.to_thread(_append, sample.output, group, grades)

            await watched(play(), player.engine.watch())
    trajectories, grades = _read(sample.output, encoded.prompts)
    metrics = training_dynamics(trajectories, grades) if trajectories else {}
    print(json.dumps({"trajectories": len(trajectories), **metrics}), flush=True)
    return trajectories


def _check_settings(config: RolloutCommandConfig) -> None:
    """Write the settings beside the output; refuse to go on with an output of other settings."""
    path = config.sample.output.with_name(f"{config.sample.output.name}.toml")
    settings = dump_config(config)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if config.sample.output.exists() and path.exists() and path.read_text(encoding="utf-8") != settings:
            raise ConfigError(f"{config.sample.output} was made with other settings (see {path.name}): choose another")
        path.write_text(settings, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error


def _go_on(output: Path, samples: int) -> set[str]:
    """The problems whose groups are whole in the file; what a kill left of others is taken out of it."""
    from torl.metrics.records import encode_row, encode_trajectory, read_trajectories
    from torl.metrics.writers import replacing

    if not output.exists():
        return set()
    records = list(read_trajectories(output))
    counts = Counter(record.trajectory.prompt.problem.id for record in records)
    whole = {problem for problem, count in counts.items() if count == samples}
    with replacing(output) as file:
        for record in records:
            if record.trajectory.prompt.problem.id in whole:
                file.write(encode_row(encode_trajectory(record)))
    return whole


def _append(output: Path, group: Sequence[Trajectory], grades: Sequence[Grade]) -> None:
    from torl.metrics.records import TrajectoryRecord, encode_row, encode_trajectory
    from torl.metrics.writers import append_whole

    rows = [
        encode_row(encode_trajectory(TrajectoryRecord(STEP, trajectory, grade, None, {})))
        for trajectory, grade in zip(group, grades, strict=True)
    ]
    append_whole(output, b"".join(rows))


def _read(output: Path, prompts: Sequence[Prompt]) -> tuple[list[Trajectory], list[Grade]]:
    """All of the file, in the order of the prompts and samples."""
    from torl.metrics.records import read_trajectories

    if not output.exists():
        return [], []
    place = {prompt.problem.id: index for index, prompt in enumerate(prompts)}
    records = sorted(
        read_trajectories(output),
        key=lambda record: (place.get(record.trajectory.prompt.problem.id, -1), record.trajectory.sample),
    )
    return [record.trajectory for record in records], [record.grade for record in records]


def _write_problems(path: Path, problems: Sequence[str | Problem]) -> Path:
    if not problems:
        raise DataError("there are no problems")
    with path.open("w", encoding="utf-8") as file:
        for number, given in enumerate(problems):
            problem = Problem(f"problem-{number}", given, "?") if isinstance(given, str) else given
            row = {"id": problem.id, "problem": problem.question, "answer": problem.answer}
            file.write(json.dumps(row) + "\n")
    return path
