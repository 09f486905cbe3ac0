"""The numbers of uses of the examples of a fine-tuning run."""

from collections import Counter
from collections.abc import Iterable


class ExampleUses:
    """Counts the uses of examples. A step costs as much as it has examples, however many there are in all."""

    def __init__(self, examples: Iterable[str]) -> None:
        """Begin with no use of any of the examples."""
        self._uses = dict.fromkeys(examples, 0)
        self._examples = Counter(self._uses.values())  # number of examples by their number of uses

    def add(self, ids: Iterable[str]) -> None:
        """Add a use of each of these examples; unknown ones have no count."""
        for each in ids:
            if each in self._uses:
                self._examples[self._uses[each]] -= 1
                self._uses[each] += 1
                self._examples[self._uses[each]] += 1
        self._examples = +self._examples  # without numbers of uses that no example has

    @property
    def most(self) -> int:
        """Largest number of uses of an example."""
        return max(self._examples)

    @property
    def least(self) -> int:
        """Smallest number of uses of an example."""
        return min(self._examples)
