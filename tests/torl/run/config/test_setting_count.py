"""The number of settings: they cannot grow unseen."""

from torl.run.config import EvaluateConfig, FinetuneConfig, SampleConfig, TrainConfig
from torl.run.config.help import all_settings

LIMIT = 241
"""A new setting needs a use that a preset, a recipe or a guide shows, and replaces another setting."""


def test_settings_of_all_commands_are_limited() -> None:
    names = all_settings((TrainConfig, FinetuneConfig, SampleConfig, EvaluateConfig))
    assert {"data.train.path", "sample.problems", "selection.groups", "rollout.tools.*.retries"} <= names.keys()
    assert len(names) <= LIMIT
