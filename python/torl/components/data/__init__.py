"""Problem sources, and samplers that determine the order of problems in a run."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Protocol

from torl.base.guard import InvalidResultError, describe
from torl.base.types import Problem
from torl.components.data.curriculum import CurriculumSampler
from torl.components.data.problems import load_problems as load_problems
from torl.components.data.problems import stream_problems as stream_problems
from torl.components.data.sampler import PromptSampler as PromptSampler
from torl.components.data.sampler import Sampler as Sampler
from torl.components.data.stream import StreamSampler as StreamSampler


class ProblemSource(Protocol):
    """A problem source: a function that returns the problems of a set, always in the same order.

    Example, a source with two options. Ids must be unique:

        from collections.abc import Iterator
        from random import Random

        from torl import Problem

        def sums(count: int = 100, largest: int = 99) -> Iterator[Problem]:
            random = Random(0)
            for number in range(count):
                a, b = random.randint(0, largest), random.randint(0, largest)
                yield Problem(f"sum-{number}", f"What is {a} + {b}?", str(a + b))

        [data.train]
        name = "my_package.problems:sums"
        count = 1000
    """

    def __call__(self) -> Iterable[Problem]:
        """Return the problems, with the options already bound."""
        ...


PROBLEM_SOURCES: Mapping[str, Callable[..., Iterable[Problem]]] = MappingProxyType(
    {"file": load_problems, "stream": stream_problems}
)
"""Problem sources by name in the configuration."""


def check_problem(problem: object) -> None:
    """Raise `InvalidResultError` if `problem`, of a source, is not a `Problem` of texts."""
    if not isinstance(problem, Problem):
        raise InvalidResultError(f"expected Problem(id, question, answer), got {describe(problem)}")
    for name, value in (("id", problem.id), ("question", problem.question), ("answer", problem.answer)):
        if not isinstance(value, str):
            raise InvalidResultError(f"expected str as {name} of the problem {problem.id!r}, got {describe(value)}")


SAMPLERS: Mapping[str, Callable[..., Sampler]] = MappingProxyType(
    {"shuffled": PromptSampler, "curriculum": CurriculumSampler, "stream": StreamSampler}
)
"""Samplers by name in the configuration."""
