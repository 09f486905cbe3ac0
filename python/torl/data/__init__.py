"""Problem sources, and samplers that determine the order of problems in a run."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from torl.data.curriculum import CurriculumSampler
from torl.data.problems import load_problems, stream_problems
from torl.data.sampler import PromptSampler, Sampler
from torl.data.stream import StreamSampler
from torl.types import Problem

ProblemSource = Callable[[], Iterable[Problem]]
"""A function that returns the problems of a set, always in the same order. Example:

    def sums(count: int = 100, largest: int = 99) -> Iterator[Problem]:
        random = Random(0)
        for number in range(count):
            a, b = random.randint(0, largest), random.randint(0, largest)
            yield Problem(f"sum-{number}", f"What is {a} + {b}?", str(a + b))

    [data.train]
    name = "my_package.problems:sums"
    count = 1000

Its parameters are its options. Ids must be unique.
"""

PROBLEM_SOURCES: Mapping[str, Callable[..., Iterable[Problem]]] = MappingProxyType(
    {"file": load_problems, "stream": stream_problems}
)
"""Problem sources by name in the configuration."""

SAMPLERS: Mapping[str, Callable[..., Sampler]] = MappingProxyType(
    {"shuffled": PromptSampler, "curriculum": CurriculumSampler, "stream": StreamSampler}
)
"""Samplers by name in the configuration."""

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
