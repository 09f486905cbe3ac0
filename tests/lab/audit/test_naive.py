"""The formulas of the audit: one for each component of torl, equal to the run's on texts and orders made at random."""

from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import pytest

from torl.base.options import load_object
from torl.base.types import Problem, Prompt
from torl.components.algorithms.aggregation import AGGREGATIONS
from torl.components.algorithms.imitation import IMITATIONS
from torl.components.algorithms.masks import MASKS
from torl.components.algorithms.selection import GROUP_FILTERS, MEMBER_FILTERS
from torl.components.data import SAMPLERS, PromptSampler, StreamSampler
from torl.components.data.curriculum import CurriculumSampler
from torl.recipes import zerotir
from torl.run.records.behaviors import called_names, code_lines, same_value
from torl_lab.audit.naive.batches import NAIVE_AGGREGATIONS, NAIVE_IMITATIONS
from torl_lab.audit.naive.behaviors import count_lines, is_same_value, names_before_parentheses
from torl_lab.audit.naive.components import location_of
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
