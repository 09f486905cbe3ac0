"""Names of models and datasets on the Hub, replaced by names with their commit; evaluation files by their sets."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from torl.base.errors import DataError
from torl.base.options import Choice
from torl.components.data.public_sets import find_problem_file, pinned_problems
from torl.components.hub import (
    DATASET_PREFIX,
    is_local,
    pinned_dataset,
    pinned_model,
    require_trainable,
    resolve_file,
    resolve_model_config,
)
from torl.rollout.evaluation import split_by_source
from torl.run.config import FinetuneConfig, TrainConfig
from torl.run.config.schedule import with_value
from torl.training.startup import Config


def pin_commits(config: Config) -> Config:
    """Replace names of models and datasets on the Hub by names with their commit, and evaluation files by their sets.

    Raises:
        DataError: A model, a file or a dataset is unavailable, or the model cannot be trained. The message lists the
            settings and the downloads that provide them.
    """
    missing: list[str] = []

    def pinned(setting: str, pin: Callable[[str], str], path: str) -> str:
        try:
            return pin(path)
        except DataError as error:
            missing.append(f"{setting}: {error}")
            return path

    def source(setting: str, chosen: Choice[Any] | None, pin: Callable[[str], str]) -> Choice[Any] | None:
        path = None if chosen is None else getattr(chosen.options, "path", None)
        if chosen is None or path is None:
            return chosen
        if not chosen.is_custom:  # whose path may not be one of a file
            pin = partial(_pinned_file, pin)
        paths = [pinned(setting, pin, str(each)) for each in (path if isinstance(path, tuple) else (path,))]
        value = tuple(paths) if isinstance(path, tuple) else paths[0]
        return replace(chosen, options=chosen.options.model_copy(update={"path": value}))

    def trained(setting: str, path: str) -> str:
        return pinned(setting, partial(_pinned_trainable, setting), path)

    model = config.model.model_copy(update={"path": trained("model.path", config.model.path)})
    critic = config.critic
    if config.algorithm.needs_critic and critic.path is not None:
        critic = critic.model_copy(update={"path": trained("critic.path", critic.path)})
    if (teacher := config.algorithm.kl.path) is not None:
        path = pinned("algorithm.kl.reference", pinned_model, teacher)
        config = with_value(config, ("algorithm", "kl", "reference"), path)
    sets: dict[str, Any] = {
        name: source(f"data.evaluation.{name}", each, pinned_problems) for name, each in config.data.evaluation.items()
    }
    data: dict[str, Any] = {}
    update: Mapping[str, Any] = {}
    if isinstance(config, TrainConfig):
        data["train"] = source("data.train", config.data.train, pinned_problems)
    elif isinstance(config, FinetuneConfig):
        options = config.finetune
        examples = {
            name: source(f"finetune.{name}", getattr(options, name), pinned_dataset) for name in ("train", "validation")
        }
        update = {"finetune": options.model_copy(update=examples)}
    if missing:
        raise DataError("\n".join(missing))
    data["evaluation"] = split_by_source(sets)
    update = {"model": model, "critic": critic, **update}
    return config.model_copy(update={"data": config.data.model_copy(update=data), **update})


def _pinned_trainable(setting: str, path: str) -> str:
    """Pin the name of a model that is trained."""
    if not is_local(path):
        require_trainable(resolve_model_config(path), setting)  # before the weights are downloaded
    return pinned_model(path)


def _pinned_file(pin: Callable[[str], str], name: str) -> str:
    """Pin the name of a file or a dataset. A file must exist."""
    file = find_problem_file(name).path if pin is pinned_problems else name
    if not file.startswith(DATASET_PREFIX):
        resolve_file(file)
    return pin(name)
