"""torl's commands as functions, for scripts and notebooks.

The keywords are the sections of a configuration: `rollout={"max_tool_calls": 2}, engine={"dtype": "float32"}`. They
work where an event loop is running, and show their progress.
"""

from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from torl.api.event_loop import BackgroundLoop
from torl.api.policy import Model, Policy, Problems, Section
from torl.api.results import FinishedRun, SampledGroups
from torl.base.options import dotted_leaves
from torl.rollout.evaluation import Evaluation
from torl.run.config import FinetuneConfig, LearningConfig, TrainConfig
from torl.run.config.explain import Layer
from torl.run.config.loading import extended_layers, find_config, ignored_settings, read_layers, validate_config
from torl.run.display.console import Console
from torl.training import run as training_run
from torl.training import supervised_run

AnyConfig = TypeVar("AnyConfig", bound=LearningConfig)


class _SampledPolicy(Policy):
    _caller = "torl.sample"
    _keywords = ("model", "problems", "samples_per_problem", "output", "seed")


class _EvaluatedPolicy(Policy):
    _caller = "torl.evaluate"
    _keywords = ("model", "problems", "name", "output")


def sample(
    model: Model,
    problems: Problems,
    *,
    samples_per_problem: int = 1,
    output: str | Path | None = None,
    seed: int = 0,
    **sections: Section,
) -> SampledGroups:
    """Sample and grade trajectories of a model. `torl.Policy` does so several times with one engine.

    Args:
        model: Directory of a Hugging Face causal language model, its name on the Hub, or a model in a package.
        problems: Problem file or source, problems, or questions.
        samples_per_problem: Number of trajectories per problem.
        output: File that trajectories are appended to and resumed from. Optional.
        seed: Random seed.
        sections: Sections of the configuration.

    Returns:
        The groups, in the order of the problems.

    Raises:
        TorlError: The settings, the problems or the model are invalid, or a component fails.
    """
    with _SampledPolicy(model, seed=seed, **sections) as policy:
        return policy.sample(problems, samples_per_problem=samples_per_problem, output=output, seed=seed)


def evaluate(
    model: Model,
    problems: Problems,
    *,
    name: str | None = None,
    output: str | Path | None = None,
    **sections: Section,
) -> Evaluation:
    """Measure a model on problems, greedily and by samples as the section `evaluation` configures.

    Args:
        model: Directory of a Hugging Face causal language model, its name on the Hub, or a model in a package.
        problems: Problem file or source, or problems.
        name: Name of the problem set; the episodes' seeds derive from it.
        output: Directory for the trajectories. Optional.
        sections: Sections of the configuration.

    Raises:
        TorlError: The settings, the problems or the model are invalid, or a component fails.
    """
    with _EvaluatedPolicy(model, seed=0, **sections) as policy:
        return policy.evaluate(problems, name=name, output=output)


def train(
    config: str | Path | TrainConfig, overrides: Mapping[str, Any] | None = None, **sections: Section
) -> FinishedRun:
    """Train a model: `train("demo", run={"steps": 10})`.

    Args:
        config: TOML file, preset, directory of a run, or configuration.
        overrides: Values by dotted name, as in `{"run.steps": 10}`.
        sections: Sections that override those of the file.

    Returns:
        The run with its metrics, trajectories and summary.

    Raises:
        TorlError: The configuration or the data is invalid, or a component fails; all records are kept.
    """
    return _run(TrainConfig, "torl.train", config, overrides, sections, training_run.train)


def finetune(
    config: str | Path | FinetuneConfig, overrides: Mapping[str, Any] | None = None, **sections: Section
) -> FinishedRun:
    """Fine-tune a model on examples: `finetune("demo", finetune={"train": "examples.jsonl"})`.

    Arguments, result and errors are those of `train`. The sections for reinforcement learning are ignored.
    """
    return _run(FinetuneConfig, "torl.finetune", config, overrides, sections, supervised_run.finetune)


def _run(
    config_class: type[AnyConfig],
    caller: str,
    config: str | Path | AnyConfig,
    overrides: Mapping[str, Any] | None,
    sections: Mapping[str, Section],
    work: Callable[[AnyConfig, Console], Coroutine[Any, Any, dict[str, Any]]],
) -> FinishedRun:
    ignored: list[str] = []
    if not isinstance(config, config_class):
        assert isinstance(config, str | Path)
        tree = dict(sections)
        files = [*read_layers(find_config(config)), *extended_layers(tree, caller)]
        layers = [*files, Layer(caller, tree)]
        config = validate_config(config_class, layers, overrides, caller=caller, keywords=("config", "overrides"))
        ignored = ignored_settings(config_class, files, {**dict(dotted_leaves(tree)), **(overrides or {})})
    with Console() as console, BackgroundLoop() as loop:
        for line in ignored:
            console.line(line)
        summary = loop.call(work(config, console))
    return FinishedRun(config.run.directory, summary)
