"""Problem sources, and samplers that determine the order of problems in a run."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from torl.data.curriculum import CurriculumSampler
from torl.data.problems import load_problems, stream_problems
from torl.data.sampler import PromptSampler, Sampler
from torl.data.stream import StreamSampler
from torl.guard import InvalidResultError, describe
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


def check_problem(problem: object) -> None:
    """Check a problem of a source.

    Raises:
        InvalidResultError: `problem` is not a `Problem` of texts.
    """
    if not isinstance(problem, Problem):
        raise InvalidResultError(f"expected Problem(id, question, answer), got {describe(problem)}")
    for name, value in (("id", problem.id), ("question", problem.question), ("answer", problem.answer)):
        if not isinstance(value, str):
            raise InvalidResultError(f"expected str as {name} of the problem {problem.id!r}, got {describe(value)}")


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
    "check_problem",
    "load_problems",
    "stream_problems",
]
