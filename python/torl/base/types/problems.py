"""Problems, and their prompts in the template of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ALTERNATIVE = "\x1e"
"""Separator of a reference's alternative answers, each of which is correct; a line break separates none."""

TESTS = "tests"
"""Metadata field of the tests of a problem whose answer is a program."""
SOLUTIONS = "solutions"
"""Metadata field of the programs that solve a problem."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with its reference answer.

    Attributes:
        id: Unique name of the problem.
        question: Text of the question.
        answer: Reference answer, or several (`answers`), joined.
        metadata: Further fields of the problem, such as its source or level.
    """

    id: str
    question: str
    answer: str
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def answers(self) -> tuple[str, ...]:
        """The reference answers, each of which is correct: one, or those of a list in the data."""
        return tuple(self.answer.split(ALTERNATIVE))


@dataclass(frozen=True, slots=True)
class Prompt:
    """A problem in the prompt template of a run.

    Attributes:
        problem: Problem of the prompt.
        token_ids: Tokens of the prompt.
        variant: Name of the variant, if the template gives several.
        weight: Weight of the variant in the draw of an episode's prompt.
        variants: The other variants of the prompt.
    """

    problem: Problem
    token_ids: tuple[int, ...]
    variant: str | None = None
    weight: float = 1.0
    variants: tuple["Prompt", ...] = ()

    def for_episode(self, seed: int) -> "Prompt":
        """Return the prompt of one episode: this one or another variant, drawn by weight with `seed`, below 2**63."""
        variants = (self, *self.variants)
        position = seed / 2**63 * sum(each.weight for each in variants)
        for each in variants[:-1]:
            if position < each.weight:
                return each
            position -= each.weight
        return variants[-1]
