"""Settings that change with the step: read from lists of pairs, validated, resolved, written back."""

import pickle
import tomllib
from pathlib import Path
from typing import Any

import pytest

from builders import write_config
from scripted_run import ScriptedRun
from torl.base.errors import ConfigError
from torl.learner.messages import LearnerSetup
from torl.run.config import EvaluateModelConfig, TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.records.run_directory import changed_keys, read_configs

SCHEDULES = {
    "rollout.temperature": "[[0, 1.0], [3, 0.5]]",
    "rollout.max_response_tokens": [[0, 100], [2, 160], [4, 120]],
    "algorithm.policy_loss.clip_high": [[0, 0.2], [3, 0.3]],
    "algorithm.kl.coefficient": [[0, 0], [2, 0.1]],
    "selection.mask.repetitive.above": [[0, 0.9], [2, 0.5]],
}


def configuration(**overrides: Any) -> TrainConfig:
    return load_config(TrainConfig, find_config("demo"), overrides)


SCHEDULED = configuration(**SCHEDULES)


def values(config: TrainConfig) -> tuple[Any, ...]:
    return (
        config.rollout.temperature,
        config.rollout.max_response_tokens,
        config.algorithm.policy_loss.options.clip_high,  # type: ignore[attr-defined]
        config.algorithm.kl.coefficient,
        config.selection.mask["repetitive"].options.above,  # type: ignore[attr-defined]
    )


def test_each_step_has_the_values_of_its_stage() -> None:
    assert [values(SCHEDULED.at_step(step)) for step in (0, 1, 2, 3, 4, 99)] == [
        (1.0, 100, 0.2, 0, 0.9),
        (1.0, 100, 0.2, 0, 0.9),
        (1.0, 160, 0.2, 0.1, 0.5),
        (0.5, 160, 0.3, 0.1, 0.5),
        (0.5, 120, 0.3, 0.1, 0.5),
        (0.5, 120, 0.3, 0.1, 0.5),
    ]
    assert SCHEDULED.schedule_steps == [2, 3, 4]
    assert SCHEDULED.scheduled_values(3)["algorithm.policy_loss.clip_high"] == 0.3
    assert SCHEDULED.at_step(3).at_step(0) == SCHEDULED.at_step(3)


def test_the_fields_hold_the_largest_values() -> None:
    """They decide memory, the engine's context and whether a reference model is loaded."""
    assert values(SCHEDULED) == (1.0, 160, 0.3, 0.1, 0.9)
    assert SCHEDULED.algorithm.needs_reference
    assert not SCHEDULED.at_step(0).algorithm.needs_reference


def test_schedules_survive_files_copies_and_pickle() -> None:
    again = TrainConfig.model_validate(tomllib.loads(str(SCHEDULED)))
    copied = SCHEDULED.model_copy(update={"learner": SCHEDULED.learner})
    for config in (again, copied, pickle.loads(pickle.dumps(SCHEDULED))):
        assert config == SCHEDULED
        assert config.scheduled_values(2) == SCHEDULED.scheduled_values(2)


def test_override_replaces_a_schedule() -> None:
    tree = tomllib.loads(str(SCHEDULED))
    tree["rollout"]["temperature"] = 0.7
    config = TrainConfig.model_validate(tree)
    assert config.at_step(50).rollout.temperature == 0.7
    assert "rollout.temperature" not in config.scheduled_values(0)


def test_other_commands_use_the_largest_value(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(str(SCHEDULED))
    assert load_config(EvaluateModelConfig, tmp_path / "config.toml").rollout.max_response_tokens == 160


def test_without_schedules_the_configuration_of_a_step_is_the_same() -> None:
    config = configuration()
    assert config.at_step(7) is config
    assert (config.schedule_steps, config.scheduled_values(7)) == ([], {})
    assert LearnerSetup.from_config(config).later == ()


def test_schedule_of_the_policy_ends_at_the_last_step_if_the_critic_learns_first() -> None:
    steps = {"run.steps": 50, "critic.pretrain_steps": 10}
    for estimator, expected in (("ppo", 40), ("grpo", 50)):
        config = load_config(TrainConfig, find_config("demo"), steps | {"algorithm.estimator": estimator})
        assert LearnerSetup.from_config(config).policy_steps == expected


def test_learner_follows_the_schedule() -> None:
    setup = LearnerSetup.from_config(SCHEDULED)
    assert setup.algorithm.kl.coefficient == 0.1
    assert [setup.at_step(step).temperature for step in (0, 2, 3)] == [1.0, 1.0, 0.5]
    assert [setup.at_step(step).algorithm.kl.coefficient for step in (0, 2, 3)] == [0, 0.1, 0.1]


def test_resumed_run_keeps_the_schedule(tmp_path: Path) -> None:
    write_config(tmp_path, SCHEDULED)
    assert changed_keys(tmp_path, SCHEDULED) == []
    later = configuration(**SCHEDULES | {"rollout.temperature": [[0, 1.0], [3, 0.25]]})
    assert [str(change) for change in write_config(tmp_path, later, first_step=5)] == [
        "rollout.temperature changed from [[0, 1.0], [3, 0.5]] to [[0, 1.0], [3, 0.25]]"
    ]
    assert [(first, config.at_step(4).rollout.temperature) for first, config in read_configs(tmp_path)] == [
        (0, 0.5),
        (5, 0.25),
    ]


async def test_episodes_have_the_settings_of_their_step(tmp_path: Path) -> None:
    schedule = {"temperature": [[0, 1.0], [1, 0.5]], "max_tool_calls": [[0, 1], [1, 0]]}
    run = ScriptedRun(tmp_path, rollout=schedule)
    for step in range(2):
        run.version = step
        await run.step_player.play(step)
    sampled = {name: request.sampling.temperature for name, request in run.engine.requests.items()}
    assert {value for name, value in sampled.items() if name.startswith("0/")} == {1.0}
    assert {value for name, value in sampled.items() if name.startswith("1/")} == {0.5}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("rollout.temperature", [[1, 1.0]], "the steps must ascend from 0, got \\[1\\]"),
        ("rollout.temperature", [[0, 1.0], [0, 0.5]], "the steps must ascend from 0"),
        ("rollout.temperature", [[0, 1.0], [2.5, 0.5]], "must begin with a step, a whole number"),
        ("rollout.temperature", [[0, 1.0], [3, "hot"]], "each pair must end with a number"),
        ("rollout.temperature", [[0, 1.0], [3, True]], "each pair must end with a number"),
        ("rollout.temperature", True, "rollout.temperature must be a number, not a boolean, got True"),
        ("rollout.temperature", [[0, 1.0], [3, -1.0]], "must be greater than or equal to 0, got -1.0"),
        ("rollout.max_tool_calls", [[0, 1], [3, 1.5]], "must be a valid integer"),
        ("rollout.top_p", [[0, 1.0]], r"must be a valid number, got \[\[0, 1.0\]\]"),
        ("algorithm.epochs", [[0, 1]], "must be a valid integer"),
        ("reward.parts.answer.correct", [[0, 1.0]], "must be a valid number"),
    ],
)
def test_invalid_schedule_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configuration(**{name: value})


def test_integers_stay_integers() -> None:
    """The engine takes no float as a number of tokens."""
    config = configuration(**{"rollout.max_response_tokens": [[0, 1e2], [3, 1.2e2]]})
    limits = [config.at_step(step).rollout.max_response_tokens for step in (0, 3)]
    assert (limits, {type(limit) for limit in limits}) == ([100, 120], {int})
