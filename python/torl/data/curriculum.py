"""A sampler that leaves problems out: too easy or too hard ones, less important ones, those that teach nothing."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from torl.data.sampler import PromptSampler
from torl.errors import CheckpointError, DataError
from torl.types import Prompt


class CurriculumSampler(PromptSampler):
    """Shuffled epochs without the problems that are left out of them."""

    kind = "curriculum"

    def __init__(
        self,
        prompts: Iterable[Prompt],
        seed: int,
        pass_rate_range: tuple[float, float] | None = None,
        weight_field: str | None = None,
        cooldown_after: int = 0,
        cooldown_epochs: int = 1,
    ) -> None:
        """Start at the beginning of epoch 0.

        Args:
            pass_rate_range: Pass rates of the sampled problems, bounds included; `torl.data difficulty` measures them.
            weight_field: field of the problems that says in which share of the epochs each is met, from 0 to 1.
            cooldown_after: a problem that all of a group solved, or none, so many times in a row rests; 0 for never.
            cooldown_epochs: epochs for which it rests.

        Raises:
            DataError: no problem is left, or one lacks a number that is asked for.
        """
        super().__init__([prompt for prompt in prompts if _is_inside(prompt, pass_rate_range)], seed)
        self._weights = {prompt.problem.id: _number(prompt, weight_field) for prompt in self._prompts if weight_field}
        self._rest_after, self._rest_epochs = cooldown_after, cooldown_epochs
        self._carried: list[str] = []  # met again within one take: they come first in the next
        self._streaks: dict[str, int] = {}  # n groups in a row that all solved (n > 0) or none did (n < 0)
        self._resting: dict[str, int] = {}  # until this epoch

    def take(self, count: int) -> list[Prompt]:
        """The next `count` prompts that are not left out, no two alike.

        Where too few are awake, those that rest are taken too: a step is never short.

        Raises:
            ValueError: there are not that many prompts.
        """
        if count > len(self):
            raise ValueError(f"{count} prompts were asked for, there are {len(self)}")
        by_id = {prompt.problem.id: prompt for prompt in self._prompts}
        taken = {name: by_id[name] for name in self._carried[:count]}
        self._carried = self._carried[count:]
        passed = 0  # in a row
        while len(taken) < count:
            (prompt,) = super().take(1)
            name = prompt.problem.id
            if name in taken:
                self._carried += [name] * (name not in self._carried and self._is_met(name))
                passed += 1
            elif not self._is_met(name) and passed < 2 * len(self):
                passed += 1
            else:
                taken[name] = prompt
                passed = 0
        return list(taken.values())

    def record_accuracies(self, accuracies: Mapping[str, float]) -> None:
        """Send problems to rest whose groups teach nothing."""
        for name, accuracy in accuracies.items():
            before = self._streaks.get(name, 0)
            kind = (accuracy == 1.0) - (accuracy == 0.0)
            streak = before + kind if kind * before > 0 else kind
            if self._rest_after and abs(streak) >= self._rest_after:
                self._resting[name] = self.epoch + 1 + self._rest_epochs
                streak = 0
            self._streaks[name] = streak

    def state_dict(self) -> dict[str, Any]:
        """The position with what was observed, as plain JSON."""
        observed = {"carried": list(self._carried), "streaks": dict(self._streaks), "resting": dict(self._resting)}
        return super().state_dict() | {"curriculum": observed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where the sampler that wrote `state` stood.

        Raises:
            CheckpointError: the state is of other problems, another seed or another sampler, or damaged.
        """
        super().load_state_dict(state)
        observed = state["curriculum"]
        known = {prompt.problem.id for prompt in self._prompts}
        if not all(known.issuperset(observed.get(name, ("",))) for name in ("carried", "streaks", "resting")):
            raise CheckpointError("the checkpoint's curriculum is damaged: it names problems that are not there")
        self._carried = list(observed["carried"])
        self._streaks, self._resting = dict(observed["streaks"]), dict(observed["resting"])

    def _is_met(self, name: str) -> bool:
        """Whether a problem is met in this epoch."""
        if self._resting.get(name, 0) > self.epoch:
            return False
        weight = self._weights.get(name, 1.0)
        chance = hashlib.blake2b(f"{self._seed}/{self.epoch}/{name}/weight".encode(), digest_size=8).digest()
        return weight >= 1 or int.from_bytes(chance) < weight * 2**64


def _is_inside(prompt: Prompt, window: tuple[float, float] | None) -> bool:
    return window is None or window[0] <= _number(prompt, "pass_rate") <= window[1]


def _number(prompt: Prompt, field: str | None) -> float:
    value = prompt.problem.metadata.get(field or "")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"problem {prompt.problem.id} has no number in {field!r}, which data.sampler asks for")
    return float(value)
