"""Naive samplers: the order in which a run draws its problems, and the prompt of each episode."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torl.base.types import Prompt

_PASS_RATE = "pass_rate"


class NaiveShuffled:
    """Epochs in the order of a hash of seed, epoch and id."""

    def __init__(self, prompts: Iterable[Prompt], seed: int) -> None:
        """Begin with the first epoch."""
        self.problems, self.seed = [prompt.problem for prompt in prompts], seed
        self.epoch, self.left = 0, self._order(0)

    def resume(self, before: Any) -> None:
        """Continue where the sampler of the steps before ended, which had the same problems and the same seed."""
        self.epoch, self.left = before.epoch, before.left

    def take(self, count: int) -> list[str]:
        """Return the ids of the next `count` problems, all different."""
        taken, self.left = self.left[:count], self.left[count:]
        if missing := count - len(taken):
            self.epoch += 1
            order = self._order(self.epoch)
            first = [name for name in order if name not in taken][:missing]
            # What the end of the last epoch had comes right after.
            repeated = [name for name in order if name in taken]
            self.left = repeated + [name for name in order if name not in taken and name not in first]
            taken += first
        return taken

    def record_accuracies(self, accuracies: Mapping[str, float]) -> None:
        """Do nothing: the order does not depend on accuracies."""

    def _order(self, epoch: int) -> list[str]:
        names = [problem.id for problem in self.problems]
        return sorted(names, key=lambda name: _hash(f"{self.seed}/{epoch}/{name}", 16))


class NaiveCurriculum(NaiveShuffled):
    """Epochs that leave out problems by pass rate, or groups that were all right or all wrong."""

    def __init__(
        self,
        prompts: Iterable[Prompt],
        seed: int,
        *,
        pass_rate_range: tuple[float, float] | None,
        cooldown: tuple[int, int],
    ) -> None:
        low, high = pass_rate_range or (0.0, 1.0)
        fits = [each for each in prompts if not pass_rate_range or low <= each.problem.metadata[_PASS_RATE] <= high]
        super().__init__(fits, seed)
        self._after, self._epochs = cooldown
        self.carried: list[str] = []  # drawn twice by one `take`
        self.equal: dict[str, list[float]] = {}  # accuracies since the last one of another kind, all 0 or all 1
        self.resting: dict[str, int] = {}  # the epoch that has a problem again

    def resume(self, before: Any) -> None:
        super().resume(before)
        self.carried, self.equal, self.resting = before.carried, before.equal, before.resting

    def take(self, count: int) -> list[str]:
        taken, self.carried = self.carried[:count], self.carried[count:]
        passed = 0
        while len(taken) < count:
            (name,) = super().take(1)
            if name in taken:
                if self._is_sampled(name) and name not in self.carried:
                    self.carried.append(name)
                passed += 1
            elif self._is_sampled(name) or passed >= 2 * len(self.problems):  # nothing else is left: take it anyway
                taken.append(name)
                passed = 0
            else:
                passed += 1
        return taken

    def record_accuracies(self, accuracies: Mapping[str, float]) -> None:
        """Let problems rest whose groups were all right, or all wrong, as often in a row as `cooldown` says."""
        for name, accuracy in accuracies.items():
            before = self.equal.get(name, [])
            self.equal[name] = [*before, accuracy] if before[-1:] == [accuracy] else [accuracy]
            if accuracy not in (0, 1):
                self.equal[name] = []
            if self._after and len(self.equal[name]) >= self._after:
                self.resting[name] = self.epoch + 1 + self._epochs
                self.equal[name] = []

    def _is_sampled(self, name: str) -> bool:
        return self.resting.get(name, 0) <= self.epoch


class NaiveStream:
    """Epochs in the order of the file, shuffled within a buffer: each draw takes one of it, which the last replaces."""

    def __init__(self, prompts: Iterable[Prompt], seed: int, *, buffer_size: int) -> None:
        """Begin with the first epoch."""
        self._prompts, self._seed, self._size = prompts, seed, buffer_size
        self.epoch = -1
        self._begin()

    def resume(self, before: Any) -> None:
        """Continue where the sampler of the steps before ended, which had the same problems, seed and buffer."""
        vars(self).update(vars(before))

    def take(self, count: int) -> list[str]:
        """Return the ids of the next `count` problems, all different."""
        taken: list[str] = []
        earlier: list[str] = []  # of the last epoch
        left = 0  # draws of a new epoch that avoid them
        while len(taken) < count:
            if not self._buffer:
                self._begin()
                earlier, left = list(taken), count - len(taken)
            place = int.from_bytes(_hash(f"{self._seed}/{self.epoch}/{self._drawn}", 8), "big") % len(self._buffer)
            if self._drawn < left:
                others = [*range(place, len(self._buffer)), *range(place)]
                place = next((each for each in others if self._buffer[each] not in earlier), place)
            name = self._buffer[place]
            self._buffer[place] = self._buffer[-1]
            self._buffer.pop()
            self._buffered.remove(name)
            self._drawn += 1
            self._fill()
            if name not in taken:
                taken.append(name)
            elif self._drawn <= left:  # another draw replaces it
                left += 1
        return taken

    def record_accuracies(self, accuracies: Mapping[str, float]) -> None:
        """Do nothing: the order does not depend on accuracies."""

    def _begin(self) -> None:
        self.epoch += 1
        self._drawn = 0
        self._unread: Iterator[Prompt] = iter(self._prompts)
        self._buffer: list[str] = []
        self._buffered: set[str] = set()
        self._fill()

    def _fill(self) -> None:
        while len(self._buffer) < self._size and (prompt := next(self._unread, None)) is not None:
            if prompt.problem.id not in self._buffered:
                self._buffer.append(prompt.problem.id)
                self._buffered.add(prompt.problem.id)


def naive_variant(prompt: Prompt, seed: int) -> Prompt:
    """Return the variant of a prompt that an episode draws by weight."""
    variants: Sequence[Prompt] = [prompt, *prompt.variants]
    total = sum(each.weight for each in variants)
    drawn = seed / 2**63 * total
    for number, each in enumerate(variants):
        if drawn < sum(other.weight for other in variants[: number + 1]):
            return each
    return variants[-1]


def _hash(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=size).digest()


NAIVE_SAMPLERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "torl.components.data.sampler:PromptSampler": NaiveShuffled,
        "torl.components.data.curriculum:CurriculumSampler": NaiveCurriculum,
        "torl.components.data.stream:StreamSampler": NaiveStream,
    }
)
"""The formula of each of torl's samplers, by the place of its class."""
