"""The formulas of the audit: one for each component of torl, against numbers by hand and the run's at random."""

import re
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import pytest

from cli import ROOT
from torl.base.options import load_object
from torl.base.types import Problem, Prompt
from torl.components.algorithms import ESTIMATORS
from torl.components.algorithms.aggregation import AGGREGATIONS
from torl.components.algorithms.imitation import IMITATIONS
from torl.components.algorithms.masks import MASKS
from torl.components.algorithms.selection import GROUP_FILTERS, MEMBER_FILTERS
from torl.components.data import SAMPLERS, PromptSampler, StreamSampler
from torl.components.data.curriculum import CurriculumSampler
from torl.recipes import zerotir
from torl.run.config import AlgorithmConfig, LearnerConfig
from torl.run.records.behaviors import called_names, code_lines, same_value
from torl_lab.audit.naive import location_of
from torl_lab.audit.naive.behaviors import count_lines, is_same_value, names_before_parentheses
from torl_lab.audit.naive.estimators import NAIVE_ESTIMATORS, BatchRewards, naive_advantages
from torl_lab.audit.naive.learner import NAIVE_AGGREGATIONS, NAIVE_IMITATIONS, naive_kl, naive_learning_rate
from torl_lab.audit.naive.masks import NAIVE_MASKS, count_closed, naive_repetition
from torl_lab.audit.naive.samplers import NAIVE_SAMPLERS, NaiveCurriculum, NaiveShuffled, NaiveStream, naive_variant
from torl_lab.audit.naive.selection import NAIVE_GROUP_FILTERS, NAIVE_MEMBER_FILTERS


@pytest.mark.parametrize(
    ("registry", "formulas"),
    [
        (MASKS, NAIVE_MASKS),
        (GROUP_FILTERS, NAIVE_GROUP_FILTERS),
        (MEMBER_FILTERS, NAIVE_MEMBER_FILTERS),
        (IMITATIONS, NAIVE_IMITATIONS),
        (AGGREGATIONS, NAIVE_AGGREGATIONS),
        (SAMPLERS, NAIVE_SAMPLERS),
    ],
    ids=["masks", "group filters", "member filters", "imitations", "aggregations", "samplers"],
)
def test_each_component_of_torl_has_a_formula(registry: Mapping[str, Any], formulas: Mapping[str, Any]) -> None:
    targets = [load_object(target) if isinstance(target, str) else target for target in registry.values()]
    assert {location_of(target) for target in targets} == set(formulas)


def texts(symbols: str, count: int = 3000, longest: int = 10) -> list[str]:
    chance = Random(0)
    return ["".join(chance.choices(symbols.split("|"), k=chance.randint(0, longest))) for _ in range(count)]


def test_facts_of_texts_are_those_of_the_run() -> None:
    for text in texts("a|b.|1|.|_| |\n|(|)|é|if|..|x1|٣"):
        assert set(names_before_parentheses(text)) == called_names(text), text
    for text in texts("a|#| |\n|\r|\x0c"):
        assert count_lines(text) == code_lines(text), text
    values = texts("1|$|\\|,| |;|x|0|.")
    for one, other in zip(values, reversed(values), strict=True):
        assert is_same_value(one, other) == same_value(one, other), (one, other)
    for text in texts("```python\n|```output\n|```|a|b| |\n|中", longest=14):
        fences = [count_closed(text, f"```{name}\n") for name in ("python", "output")]
        assert fences == [len(zerotir._CODE.findall(text)), len(zerotir._OUTPUT.findall(text))], text
        assert naive_repetition(text) == pytest.approx(zerotir.repetition(text), abs=1e-12), text


def prompts(count: int) -> list[Prompt]:
    return [Prompt(Problem(f"p{each}", "", "", {"pass_rate": each / count}), ()) for each in range(count)]


@pytest.mark.parametrize("seed", range(12))
def test_orders_are_those_of_the_run(seed: int) -> None:
    """Over several epochs, with problems that rest, and copies in a stream."""
    chance, asked = Random(seed), prompts(11)
    copies = asked[:5] + asked[2:4] + asked[5:]
    curriculum = {
        "pass_rate_range": (0.2, 1.0),
        "cooldown": (1 + seed % 2, 1),
    }
    pairs: list[tuple[Any, Any]] = [
        (PromptSampler(asked, seed), NaiveShuffled(asked, seed)),
        (CurriculumSampler(asked, seed, **curriculum), NaiveCurriculum(asked, seed, **curriculum)),
        (StreamSampler(copies, seed, 6), NaiveStream(copies, seed, buffer_size=6)),
    ]
    for _ in range(25):
        count = chance.randint(1, 5)
        for sampler, naive in pairs:
            drawn = naive.take(count)
            assert [prompt.problem.id for prompt in sampler.take(count)] == drawn
            accuracies = {name: chance.choice((0.0, 0.5, 1.0)) for name in drawn}
            for each in (sampler, naive):
                each.record_accuracies(accuracies)
            assert sampler.epoch == naive.epoch


def test_variants_are_drawn_by_weight() -> None:
    problem = Problem("p", "", "")
    variants = tuple(Prompt(problem, (), name, weight) for name, weight in (("b", 2.0), ("c", 0.5)))
    prompt = Prompt(problem, (), "a", 1.0, variants)
    seeds = np.random.default_rng(0).integers(0, 2**63, 500).tolist()
    assert [naive_variant(prompt, seed) for seed in seeds] == [prompt.for_episode(seed) for seed in seeds]


def found(
    name: str,
    *,
    token_rewards: list[list[float]] | None = None,
    values: list[list[float]] | None = None,
    algorithm: dict[str, Any] | None = None,
    **options: Any,
) -> list[float]:
    """Three trajectories of two groups, with two, one and one tokens and rewards 1, -1 and 1."""
    config = AlgorithmConfig(estimator={"name": name, **options}, **(algorithm or {}))  # type: ignore[arg-type]
    extra = token_rewards or [[0.0, 0.0], [0.0], [0.0]]
    turns = [[1, 1], [1], [1]]
    rows = naive_advantages(config, BatchRewards([1.0, -1.0, 1.0], ["a", "a", "b"], extra, values, turns))
    assert rows is not None
    assert [len(row) for row in rows] == [2, 1, 1]
    return [value for row in rows for value in row]


def test_naive_advantages_by_hand() -> None:
    assert found("dr_grpo") == [1, 1, -1, 1]
    assert found("rloo") == [2, 2, -2, 1]
    assert found("grpo") == pytest.approx([2**-0.5, 2**-0.5, -(2**-0.5), 1], rel=1e-5)
    assert found("reinforce_plus_plus") == pytest.approx([0.5, 0.5, -1.5, 0.5])  # 1, 1, -1, 1: mean 1/2, variance 1
    # Errors: 1/2 * 3 - 2, 1 - 3, -1 - 4, 1 - 0; the first advantage is -1/2 - 2 / 4.
    values = [[2.0, 3.0], [4.0], [0.0]]
    assert found("ppo", values=values, discount=0.5, gae_lambda=0.5) == [-1, -2, -5, 1]


def test_returns_from_turn_to_turn_by_hand() -> None:
    """Three turns of a: returns 1/2, 1 and -1, mean 1/6, variance 13/12; with rewards 2 and 0 added: 5/2, 1, -1."""
    deviation = (13 / 12) ** 0.5
    assert found("gtpo", discount=0.5) == pytest.approx(
        [(1 / 2 - 1 / 6) / deviation, (1 - 1 / 6) / deviation, (-1 - 1 / 6) / deviation, 1], rel=1e-5
    )
    mean, deviation = 5 / 6, ((5 / 2 - 5 / 6) ** 2 + (1 - 5 / 6) ** 2 + (-1 - 5 / 6) ** 2) ** 0.5 / 2**0.5
    assert found("gtpo", discount=0.5, token_rewards=[[2.0, 0.0], [0.0], [0.0]]) == pytest.approx(
        [(value - mean) / deviation for value in (5 / 2, 1, -1)] + [1], rel=1e-5
    )
    # First turns: 1/2 and -1, mean -1/4; the second has nothing to be compared with.
    first = 0.75 / (2 * 0.75**2) ** 0.5
    assert found("gtpo", discount=0.5, baseline="turn") == pytest.approx([first, 1, -first, 1], rel=1e-5)
    # Without a discount to bring it back, the outcome is the last turn's alone.
    assert found("gtpo", discount=0.0)[0] == 0


def test_token_rewards_count_in_the_total_at_their_position() -> None:
    turn_rewards = [[2.0, 0.0], [0.0], [4.0]]
    assert found("dr_grpo", token_rewards=turn_rewards) == [2, 2, -2, 5]  # 3 and -1: mean 1; 5 alone
    assert found("rloo", token_rewards=turn_rewards) == [4, 4, -4, 5]
    # Returns 2 + 1/2, 1, -1, 5 with discount 1/2.
    mean, variance = 7.5 / 4, ((2.5 - 1.875) ** 2 + (1 - 1.875) ** 2 + (-1 - 1.875) ** 2 + (5 - 1.875) ** 2) / 3
    expected = [(value - mean) / variance**0.5 for value in (2.5, 1, -1, 5)]
    assert found("reinforce_plus_plus", token_rewards=turn_rewards, discount=0.5) == pytest.approx(expected)


def test_only_the_reward_at_the_end_has_a_baseline() -> None:
    # The group's mean is 0, and a single member is not compared: as without; then b's reward is subtracted.
    turn_rewards = [[2.0, 0.0], [0.0], [4.0]]
    assert found("reinforce_plus_plus_baseline", token_rewards=turn_rewards) == pytest.approx(
        found("reinforce_plus_plus", token_rewards=turn_rewards)
    )


def test_rewards_and_advantages_are_normalized_on_request() -> None:
    # 1, -1, 1: mean 1/3, standard deviation sqrt(4/3).
    scale = (4 / 3) ** 0.5
    normalized = found("dr_grpo", algorithm={"normalize_rewards": True})
    assert normalized == pytest.approx([1 / scale, 1 / scale, -1 / scale, (2 / 3) / scale], rel=1e-5)
    whitened = found("dr_grpo", algorithm={"normalize_advantages": True})
    assert sum(whitened) == pytest.approx(0, abs=1e-9)
    assert sum(value**2 for value in whitened) / 3 == pytest.approx(1)


def test_the_divergence_on_a_token_by_hand() -> None:
    assert naive_kl("k1", -1.0, -3.0) == 2
    assert naive_kl("k2", -1.0, -3.0) == 2
    assert naive_kl("k3", -1.0, -1.0) == 0
    assert naive_kl("k1", 0.0, -100.0) == 20


def test_every_estimator_of_rewards_alone_has_a_naive_implementation() -> None:
    """The others read graded trajectories or a teacher; their slow references are in the tests of their formulas."""
    of_others = {"optimal_token_baseline", "gdpo", "aspo", "adatir", "gtpo_similar_code", "distillation"}
    choices = [AlgorithmConfig(estimator=name).estimator for name in ESTIMATORS.keys() - of_others]  # type: ignore[arg-type]
    assert set(NAIVE_ESTIMATORS) == {location_of(choice.target) for choice in choices}
    page = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    listed = page.partition("\n- the estimators ")[2].partition("\n")[0]
    assert set(re.findall("`(.*?)`", listed)) == of_others


def test_maxrl_by_hand() -> None:
    batch = BatchRewards([1.0, 0.0, 1.0], ["a", "a", "b"], [[0.0, 0.0], [0.0], [0.0]])
    config = AlgorithmConfig(estimator="maxrl")  # type: ignore[arg-type]
    assert naive_advantages(config, batch) == [[1.0, 1.0], [-1.0], [0.0]]


def test_custom_estimator_has_no_naive_implementation() -> None:
    config = AlgorithmConfig(estimator="custom_components:scaled")  # type: ignore[arg-type]
    assert naive_advantages(config, BatchRewards([1.0], ["a"], [[0.0]])) is None


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),
    [
        ("constant", 3, [1 / 4, 1 / 2, 3 / 4, 1, 1, 1, 1]),
        ("linear", 0, [1, 3 / 4, 1 / 2, 1 / 4, 0, 0]),
        ("linear", 2, [1 / 3, 2 / 3, 1, 1 / 2, 0]),
        ("cosine", 0, [1, (1 + 0.5**0.5) / 2, 1 / 2, (1 - 0.5**0.5) / 2, 0]),
    ],
)
def test_learning_rates_by_hand(schedule: Any, warmup: int, expected: list[float]) -> None:
    config = LearnerConfig(learning_rate=2.0, lr_schedule=schedule, warmup_steps=warmup)
    found = [naive_learning_rate(index, 4, config) for index in range(len(expected))]
    assert found == pytest.approx([2 * rate for rate in expected])
