"""Where problems come from, and the order in which they are met."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from torl.data.curriculum import CurriculumSampler
from torl.data.problems import load_problems, stream_problems
from torl.data.sampler import PromptSampler, Sampler
from torl.data.stream import StreamSampler
from torl.types import Problem

ProblemSource = Callable[[], Iterable[Problem]]
"""Gives the problems of a set, in an order that is always the same. A whole one:

    def sums(count: int = 100, largest: int = 99) -> Iterator[Problem]:
        chance = Random(0)
        for number in range(count):
            a, b = chance.randint(0, largest), chance.randint(0, largest)
            yield Problem(f"sum-{number}", f"What is {a} + {b}?", str(a + b))

    [data.train]
    name = "my_package.problems:sums"
    count = 1000

Its parameters are its options. Ids must differ.
"""

PROBLEM_SOURCES: Mapping[str, Callable[..., Iterable[Problem]]] = MappingProxyType(
    {"file": load_problems, "stream": stream_problems}
)
"""By the names that a configuration calls them."""

SAMPLERS: Mapping[str, Callable[..., Sampler]] = MappingProxyType(
    {"shuffled": PromptSampler, "curriculum": CurriculumSampler, "stream": StreamSampler}
)
"""The orders in which a run meets its problems, by the names that a configuration calls them."""

__all__ = [
    "PROBLEM_SOURCES",
    "SAMPLERS",
    "ProblemSource",
    "PromptSampler",
    "Sampler",
    "StreamSampler",
    "load_problems",
    "stream_problems",
]
