"""Metrics as values: texts to everything that stores them, and the only place of their titles and directions."""

import copy
import json
import pickle
import tomllib

import pytest
import tomli_w

from torl.run.records import metric_names as names


def test_a_metric_is_its_name_in_every_record() -> None:
    """Another process, a copy and a file get the plain text."""
    row = {names.CODE_RATIO: 0.5, "name": names.CODE_RATIO}
    assert json.loads(json.dumps(row)) == tomllib.loads(tomli_w.dumps(row)) == row
    for plain in (pickle.loads(pickle.dumps(names.CODE_RATIO)), copy.deepcopy(names.CODE_RATIO)):
        assert (type(plain), plain) == (str, "tool/code_ratio")
    assert f"{names.CODE_RATIO:>16}" == " tool/code_ratio"


def test_label_is_the_last_part_of_the_name_unless_given() -> None:
    assert (names.CODE_RATIO.label, names.CODE_RATIO.short) == ("code ratio", "code")
    assert (names.GRADIENT_NORM.label, names.ENTROPY.short) == ("gradient norm", "entropy")
    assert names.RESPONSE_TOKENS.label == "response tokens"


def test_a_value_is_shown_in_the_format_of_its_metric() -> None:
    assert [names.CODE_RATIO.show(value) for value in (0.126, None)] == ["0.13", "-"]
    assert names.LEARNING_RATE.show(2e-4) == "2.00e-04"


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("reward/accuracy", 0.75),
        ("validation/loss", 0.25),
        ("evaluation/a/b/reward/accuracy", 0.75),
        ("evaluation/heldout/response/truncated", 0.25),
        ("evaluation/heldout/tool/status/ok", 0.75),
    ],
)
def test_the_best_value_is_the_lowest_of_a_metric_that_should_fall(name: str, better: float) -> None:
    assert max((0.25, 0.5, 0.75), key=lambda value: names.quality(name, value)) == better


def test_a_family_has_the_names_with_its_prefix() -> None:
    assert names.tool_count.row({"calls": 3}, "search") == {"tool/search/calls": 3}
    assert names.kind_name("algebra/1", names.ACCURACY) == "by/algebra/1/reward/accuracy"
    assert names.reward_part("style") in names.reward_part
    assert names.REWARD_MEAN not in names.reward_part
    assert names.critic_metric(names.LOSS) == "learner/critic_loss"
