"""The removed settings, with their successors. `torl.base.removed` reads them."""

import datetime
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple


class Removed(NamedTuple):
    """A removed setting."""

    now: str
    """The successor, as the end of a message."""
    settings: Callable[[Any], Mapping[str, Any]] = lambda value: {}
    """Function of a recorded value that returns the settings that replace it, by dotted name. They are written before
    the other keys of a table. A "*" is the part of the name at its position."""
    of: Sequence[str] = ()
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


def _shuffle(values: Sequence[bool]) -> Mapping[str, str]:
    """Return the value of `ablation.shuffle`. No run can have both ablations now."""
    shuffled = [name for name, is_shuffled in zip(("observations", "rewards"), values, strict=True) if is_shuffled]
    return {"ablation.shuffle": " and ".join(shuffled) or "none"}


def _reference(values: Sequence[Any]) -> Mapping[str, str]:
    """Return the value of `algorithm.kl.reference`: a path excluded the current policy."""
    path, is_current = values
    return {"algorithm.kl.reference": found} if (found := "current_policy" if is_current else path) else {}


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
            "write selection.groups.accuracy_outside = { range = [low, high] }",
            lambda range: {"selection.groups.accuracy_outside": {"name": "accuracy_outside", "range": range}},
        ),
        "selection.drop_zero_variance_groups": Removed(
            "write selection.groups.zero_variance = {}, or false instead of {} to remove an inherited one",
            lambda drops: {"selection.groups.zero_variance": {"name": "zero_variance"}} if drops else {},
        ),
        **{
            name: Removed(now, of=of)
            for name, now, *of in (
                ("evaluate.problems", "give `torl.evaluate` its argument problems"),
                ("evaluate.output", "give `torl.evaluate` its argument output"),
                ("evaluate.use_tools", "write evaluation.rollout.max_tool_calls = 0"),
                ("use_tools", "write evaluation={'rollout': {'max_tool_calls': 0}}"),
                ("run.trackers.*.tracking_uri", "set the environment variable MLFLOW_TRACKING_URI", "mlflow"),
                ("run.trackers.*.experiment", "set the environment variable MLFLOW_EXPERIMENT_NAME", "mlflow"),
                (
                    "run.trackers.*.examples_every",
                    "trackers get the examples of every tenth step",
                    *("wandb", "trackio", "mlflow"),
                ),
                ("run.signal_report", "the lines after the first step are always printed"),
                ("health.every_steps", "every step is checked; health.mode = 'off' checks none"),
                ("algorithm.keep_reference", "a mask that needs a reference model keeps it"),
                ("cluster.address", "set the environment variable RAY_ADDRESS"),
                ("cluster.startup_timeout_seconds", "a run waits 300 s for its nodes"),
                ("engine.max_restarts", "write cluster.max_restarts", "vllm"),
                ("engine.stall_timeout_seconds", "it is half of rollout.stall_timeout_seconds", "vllm"),
                ("rollout.environment.retries", "a reset is retried 3 times"),
                (
                    "rollout.tools.*.index_directory",
                    "the index is beside the corpus: link the corpus into another directory",
                    "search",
                ),
            )
        },
        **{
            name: Removed(now, of=of, constant=constant)
            for name, constant, now, *of in (
                ("finetune.min_reward", "no limit", "write finetune.drop with a mask of your own"),
                ("finetune.date", datetime.date(2024, 7, 26), "chat templates always print 2024-07-26"),
                ("finetune.too_long", "drop", "longer examples are dropped"),
                ("finetune.variables", {}, "write data.template = { name = 'chat', variables = ... }"),
                ("data.sampler.weight_field", "no weights", "repeat problems in `data.train` instead", "curriculum"),
                ("rollout.environment.full_message", False, "the field has the text without thinking", "openenv"),
                ("rollout.environment.max_message_characters", 20_000, "longer messages are cut at 20,000 characters"),
                ("rollout.format.quoted", False, "results are written as they are", "harmony"),
                ("rollout.tools.*.max_result_characters", 20_000, "longer results are cut at 20,000 characters"),
                ("rollout.tools.*.output_kib", 1024, "the output of a run is limited to 1 MiB", "python"),
                ("algorithm.policy_loss.max_ratio", 20.0, "DPPO truncates the ratio at 20", "dppo"),
                ("algorithm.estimator.difficulty", 0.5, "calls are free where half of the answers are wrong", "adatir"),
                ("algorithm.estimator.margin", 0.1, "AdaTIR leaves a tenth of A to a correct response", "adatir"),
            )
        },
        **{
            f"{each}{section}.{option}": Removed(now, of=of)
            for each in ("", "evaluation.")
            for section in ("reward", "reward.parts.*")
            for option, now, *of in (
                ("api_key_env", "set the environment variable OPENAI_API_KEY", "judge", "turn_scores"),
                ("grader_workers", "torl starts a grader for every eight cores", "math"),
            )
        },
        **{
            f"rollout.{partner}.max_turns": Removed(
                "write rollout.max_turns", lambda turns: {"rollout.max_turns": turns}
            )
            for partner in ("agent", "environment")
        },
        "rollout.tools.*.inherit_env": Removed(
            "write rollout.tools.*.env = { NAME = true }",
            lambda values: {"rollout.tools.*.env": values[0] | dict.fromkeys(values[1], True)},
            ("mcp",),
            {"env": {}, "inherit_env": ()},
        ),
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
        **{
            f"learner.{name}": Removed(f'write learner.offload = "{value}"', _offload, joined=_OFFLOADS)
            for name, value in zip(_OFFLOADS, ("while_sampling", "optimizer", "parameters"), strict=True)
        },
        **{
            f"ablation.shuffle_{value}": Removed(
                f'write ablation.shuffle = "{value}"',
                _shuffle,
                joined={"shuffle_observations": False, "shuffle_rewards": False},
            )
            for value in ("observations", "rewards")
        },
        **{
            f"algorithm.kl.{name}": Removed(
                f"write algorithm.kl.reference = {now}", _reference, joined={"path": None, "current_policy": False}
            )
            for name, now in (("path", "MODEL"), ("current_policy", '"current_policy"'))
        },
        "selection.dynamic_sampling": Removed(
            "write selection.max_rounds = 10",
            lambda values: {"selection.max_rounds": values[1] if values[0] else 1},
            joined={"dynamic_sampling": False, "max_rounds": 10},
        ),
        **_joined("algorithm.policy_loss.positive", "vespo", power=2.0, decay=3.0),
        **_joined("algorithm.policy_loss.negative", "vespo", negative_power=3.0, negative_decay=2.0),
        **_joined("algorithm.policy_loss.temperatures", "sapo", temperature=1.0, negative_temperature=1.05),
        **_joined("algorithm.policy_loss.covariance_range", "clip_cov", covariance_low=1.0, covariance_high=5.0),
        **_joined("data.template.lines", "rc_grpo", high="<|high_reward|>", low="<|low_reward|>"),
        **_joined("data.sampler.cooldown", "curriculum", cooldown_after=0, cooldown_epochs=1),
        **_joined("selection.groups.*.range", "accuracy_outside", low=None, high=None),
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
