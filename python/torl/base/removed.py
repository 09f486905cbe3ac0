"""Removed settings, with their successors: for messages, and to read the configurations of earlier runs.

A removed setting in a file of a user, on a command line or in a call is an error that names its successor. Only in the
configuration that a run has recorded is it translated, so that old records stay readable. The module imports nothing of
torl: readers of runs use it without loading the settings.
"""

import copy
import datetime
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

FIRST_STEP_LINE: Final = "# The configuration from step {} on.\n"
"""First line of a configuration that a run records, with the first step that it applies to."""
_IS_RECORDED: Final = re.compile(FIRST_STEP_LINE.format(r"\d+"))


class Removed(NamedTuple):
    """A removed setting."""

    now: str
    """The successor, as the end of a message."""
    settings: Callable[[Any], Mapping[str, Any]] = lambda value: {}
    """Function of a recorded value that returns the settings that replace it, by dotted name. They are written before
    the other keys of a table. A "*" is the part of the name at its position."""
    of: tuple[str, ...] = ()
    """Names of the choices that had the option; empty for any."""
    joined: Mapping[str, Any] = MappingProxyType({})
    """Defaults of the keys that `settings` gets the values of, as a list; empty for the value of the setting alone."""
    constant: Any = None
    """The value that torl computes with now. A recorded run that had another one cannot be computed again."""


def _argument(option: str, of: tuple[str, ...], argument: str) -> Removed:
    """Return the successor of an option of trackers: an argument of their libraries."""
    return Removed(
        f"write run.trackers.{of[0]}.arguments = {{ {argument} = ... }}",
        lambda value: {f"run.trackers.*.arguments.{argument}": value},
        of,
    )


def _moved_to_rollout(name: str, is_set: Callable[[Any], bool] = lambda value: True) -> Removed:
    """Return a setting of `evaluation` that has the name of the setting of `rollout` that it replaced."""
    setting = f"evaluation.rollout.{name}"
    return Removed(f"write {setting}", lambda value: {setting: value} if is_set(value) else {})


_OFFLOADS: Final = MappingProxyType(
    {"offload_while_sampling": None, "offload_optimizer": False, "offload_parameters": False}
)


def _offload(values: Sequence[bool | None]) -> Mapping[str, str]:
    """Return the value of `learner.offload`: at most one of the two ways was possible."""
    while_sampling, optimizer, parameters = values
    kept = ("all" if parameters else "optimizer") if optimizer else "parameters" if parameters else None
    moved = None if while_sampling is None else "while_sampling" if while_sampling else "none"
    return {"learner.offload": value} if (value := kept or moved) else {}


def _joined(setting: str, of: str, **defaults: Any) -> dict[str, Removed]:
    """Return options that are one list now, by dotted name."""
    section = setting.rpartition(".")[0]
    now = f"write {setting} = [{', '.join(defaults)}]"
    return {f"{section}.{name}": Removed(now, lambda values: {setting: values}, (of,), defaults) for name in defaults}


REMOVED: Mapping[str, Removed] = MappingProxyType(
    {
        # The last filter first: each is written before those that a table has.
        "selection.drop_undecided_above": Removed(
            "write selection.groups.undecided.above",
            lambda limit: {"selection.groups.undecided": {"name": "undecided", "above": limit}},
        ),
        "selection.accuracy_range": Removed(
            "write selection.groups.accuracy_outside = { low, high }",
            lambda range_: {
                "selection.groups.accuracy_outside": {"name": "accuracy_outside", "low": range_[0], "high": range_[1]}
            },
        ),
        "selection.drop_zero_variance_groups": Removed(
            "write selection.groups.zero_variance = {}, or false instead of {} to remove an inherited one",
            lambda drops: {"selection.groups.zero_variance": {"name": "zero_variance"}} if drops else {},
        ),
        "evaluate.problems": Removed("give `torl.evaluate` its argument problems"),
        "evaluate.output": Removed("give `torl.evaluate` its argument output"),
        "evaluate.use_tools": Removed("write evaluation.rollout.max_tool_calls = 0"),
        "use_tools": Removed("write evaluation={'rollout': {'max_tool_calls': 0}}"),
        "run.trackers.*.tracking_uri": Removed("set the environment variable MLFLOW_TRACKING_URI", of=("mlflow",)),
        "run.trackers.*.experiment": Removed("set the environment variable MLFLOW_EXPERIMENT_NAME", of=("mlflow",)),
        "run.trackers.*.examples_every": Removed(
            "trackers get the examples of every tenth step", of=("wandb", "trackio", "mlflow")
        ),
        "run.signal_report": Removed("the lines after the first step are always printed"),
        "health.every_steps": Removed("every step is checked; health.mode = 'off' checks none"),
        "algorithm.keep_reference": Removed("a mask that needs a reference model keeps it"),
        "finetune.min_reward": Removed("write finetune.drop with a mask of your own", constant="no limit"),
        "finetune.date": Removed("chat templates always print 2024-07-26", constant=datetime.date(2024, 7, 26)),
        "rollout.environment.full_message": Removed(
            "the field has the text without thinking", of=("openenv",), constant=False
        ),
        "rollout.environment.max_message_characters": Removed(
            "longer messages are cut at 20,000 characters", constant=20_000
        ),
        "rollout.tools.*.index_directory": Removed(
            "the index is beside the corpus: link the corpus into another directory", of=("search",)
        ),
        "rollout.tools.*.output_kib": Removed("the output of a run is limited to 1 MiB", of=("python",), constant=1024),
        "rollout.tools.*.run_timeout_seconds": Removed(
            "write rollout.tools.sandbox_fusion.wall_seconds",
            lambda seconds: {"rollout.tools.*.wall_seconds": seconds},
            ("sandbox_fusion",),
        ),
        "engine.enforce_eager": Removed(
            "write engine.arguments = { enforce_eager = true }",
            lambda is_eager: {"engine.arguments.enforce_eager": True} if is_eager else {},
            ("vllm",),
        ),
        "evaluation.temperature": _moved_to_rollout("temperature", lambda value: value != 1.0),
        **{
            f"evaluation.{name}": _moved_to_rollout(name)
            for name in ("top_p", "max_tool_calls", "max_response_tokens", "stop")
        },
        "algorithm.policy_loss.max_ratio": Removed("DPPO truncates the ratio at 20", of=("dppo",), constant=20.0),
        "algorithm.estimator.margin": Removed(
            "AdaTIR leaves a tenth of A to a correct response", of=("adatir",), constant=0.1
        ),
        **{
            f"learner.{name}": Removed(f'write learner.offload = "{value}"', _offload, joined=_OFFLOADS)
            for name, value in zip(_OFFLOADS, ("while_sampling", "optimizer", "parameters"), strict=True)
        },
        **_joined("algorithm.policy_loss.positive", "vespo", power=2.0, decay=3.0),
        **_joined("algorithm.policy_loss.negative", "vespo", negative_power=3.0, negative_decay=2.0),
        **_joined("algorithm.policy_loss.temperatures", "sapo", temperature=1.0, negative_temperature=1.05),
        **_joined("algorithm.policy_loss.covariance_range", "clip_cov", covariance_low=1.0, covariance_high=5.0),
        **_joined("data.sampler.cooldown", "curriculum", cooldown_after=0, cooldown_epochs=1),
        **_joined("selection.members.*.at_least", "resample_on_correct", min_correct=2, min_wrong=2),
        **{
            f"run.trackers.*.{option}": _argument(option, of, argument)
            for option, of, argument in (
                ("project", ("wandb", "trackio"), "project"),
                ("group", ("wandb", "trackio"), "group"),
                ("entity", ("wandb",), "entity"),
                ("mode", ("wandb",), "mode"),
                ("space_id", ("trackio",), "space_id"),
                ("run_name", ("wandb", "trackio"), "name"),
            )
        },
    }
)
"""Removed settings by dotted name, of which each part may be "*"."""
RENAMED_REWARDS: Final[Mapping[str, str]] = MappingProxyType({"answer": "math"})
"""The present names of rewards that a configuration called otherwise."""
_REWARDS: Final = tuple(
    f"{each}{name}" for each in ("", "evaluation.") for name in ("reward.name", "reward.parts.*.name")
)
"""The settings that name a reward."""


def is_recorded(text: str) -> bool:
    """Whether the text of a TOML file is a configuration that a run has recorded."""
    return _IS_RECORDED.match(text) is not None


def successor(name: str) -> str | None:
    """Return the successor of a removed setting, as the end of a message; None for other names."""
    return next((each.now for pattern, each in REMOVED.items() if _pattern(pattern).fullmatch(name)), None)


def translated(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of an earlier run with the settings that replace removed ones."""
    found = copy.deepcopy(dict(tree))
    for pattern, removed in REMOVED.items():
        for section, key, path in list(_found(found, pattern.split("."))):
            if removed.of and section.get("name") not in removed.of:
                continue  # an option of another class that has the same name
            given = section.pop(key)
            if removed.joined:
                given = [given if name == key else section.pop(name, each) for name, each in removed.joined.items()]
            for name, value in removed.settings(given).items():
                _insert(found, _filled(name.split("."), path), value)
    for pattern in _REWARDS:
        for section, key, _ in _found(found, pattern.split(".")):
            section[key] = RENAMED_REWARDS.get(section[key], section[key])
    return found


def differing(tree: Mapping[str, Any]) -> str | None:
    """Return why the run of a recorded configuration cannot be computed again; None if it can.

    A removed setting had another value than torl computes with now.
    """
    for pattern, removed in REMOVED.items():
        for section, key, path in _found(tree, pattern.split(".")) if removed.constant is not None else ():
            if (not removed.of or section.get("name") in removed.of) and section[key] != removed.constant:
                return f"{'.'.join(path)} = {section[key]}: torl computes with {removed.constant} now; {removed.now}"
    return None


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(r"\*", r"[^.]+"))


def _found(tree: Any, parts: list[str], above: tuple[str, ...] = ()) -> Iterator[tuple[Any, str, tuple[str, ...]]]:
    """Yield the table, the key and the path of each setting that a pattern names."""
    first, *rest = parts
    for key in [key for key in tree if first in (key, "*")] if isinstance(tree, dict) else []:
        if rest:
            yield from _found(tree[key], rest, (*above, key))
        else:
            yield tree, key, (*above, key)


def _filled(name: list[str], path: tuple[str, ...]) -> list[str]:
    """Return a name with each "*" replaced by the part of a path at its position."""
    return [path[index] if part == "*" else part for index, part in enumerate(name)]


def _insert(tree: dict[str, Any], path: list[str], value: Any) -> None:
    first, *rest = path
    if rest:
        _insert(tree.setdefault(first, {}), rest, value)
    else:
        others = {key: each for key, each in tree.items() if key != first}
        tree.clear()
        tree.update({first: value, **others})
