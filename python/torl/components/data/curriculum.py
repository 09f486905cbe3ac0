"""A sampler that skips problems by pass rate or recent accuracy."""

from collections.abc import Iterable, Mapping
from typing import Any

from torl.base.errors import CheckpointError, DataError
from torl.base.types import Prompt
from torl.components.data.sampler import PromptSampler, require_available
from torl.components.data.values import PASS_RATE


class CurriculumSampler(PromptSampler):
    """Shuffled epochs that skip problems by pass rate or recent accuracy."""

    kind = "curriculum"

    def __init__(
        self,
        prompts: Iterable[Prompt],
        seed: int,
        pass_rate_range: tuple[float, float] | None = None,
        cooldown: tuple[int, int] = (0, 1),
    ) -> None:
        """Start at the beginning of epoch 0.

        Args:
            pass_rate_range: Minimum and maximum pass rate, inclusive. `torl data difficulty` measures pass rates, and
                `columns` of the problems names a column with published ones: { pass_rate = "llama8b_solve_rate" }.
            cooldown: Number of consecutive groups, all correct or all wrong, after which a problem is skipped, and the
                number of epochs for which it is. (0, 1) never skips.

        Raises:
            DataError: No problem is left, or a problem lacks a required number.
        """
        super().__init__([prompt for prompt in prompts if _is_in_range(prompt, pass_rate_range)], seed)
        self._cooldown_after, self._cooldown_epochs = cooldown
        self._carried: list[str] = []  # ids that a take drew twice, which the next take starts with
        self._streaks: dict[str, int] = {}  # consecutive groups: n all correct, -n all wrong
        self._cooldowns: dict[str, int] = {}  # epoch in which the problem is sampled again

    def take(self, count: int) -> list[Prompt]:
        """Return the next `count` distinct prompts that are not skipped. If too few remain, skipped ones fill the step.

        Raises:
            ValueError: `count` exceeds the number of prompts.
        """
        require_available(count, len(self))
        by_id = {prompt.problem.id: prompt for prompt in self._prompts}
        taken = {name: by_id[name] for name in self._carried[:count]}
        self._carried = self._carried[count:]
        passed = 0  # consecutive prompts that were not taken
        while len(taken) < count:
            (prompt,) = super().take(1)
            name = prompt.problem.id
            if name in taken:
                self._carried += [name] * (name not in self._carried and self._is_active(name))
                passed += 1
            elif not self._is_active(name) and passed < 2 * len(self):
                passed += 1
            else:
                taken[name] = prompt
                passed = 0
        return list(taken.values())

    def record_accuracies(self, accuracies: Mapping[str, float]) -> None:
        """Start the cooldown of problems whose groups are repeatedly all correct or all wrong."""
        for name, accuracy in accuracies.items():
            before = self._streaks.get(name, 0)
            sign = (accuracy == 1.0) - (accuracy == 0.0)
            streak = before + sign if sign * before > 0 else sign
            if self._cooldown_after and abs(streak) >= self._cooldown_after:
                self._cooldowns[name] = self.epoch + 1 + self._cooldown_epochs
                streak = 0
            self._streaks[name] = streak

    def state_dict(self) -> dict[str, Any]:
        """Return the position and the observed accuracies as plain JSON."""
        observed = {"carried": list(self._carried), "streaks": dict(self._streaks), "cooldowns": dict(self._cooldowns)}
        return super().state_dict() | {"curriculum": observed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the position from `state`.

        Raises:
            CheckpointError: The state has other problems, another seed or another sampler, or is damaged.
        """
        super().load_state_dict(state)
        observed = state["curriculum"]
        known = {prompt.problem.id for prompt in self._prompts}
        if not all(known.issuperset(observed.get(name, ("",))) for name in ("carried", "streaks", "cooldowns")):
            raise CheckpointError("the checkpoint's curriculum is damaged: it contains unknown problems")
        self._carried = list(observed["carried"])
        self._streaks, self._cooldowns = dict(observed["streaks"]), dict(observed["cooldowns"])

    def _is_active(self, name: str) -> bool:
        """Whether this epoch includes a problem."""
        return self._cooldowns.get(name, 0) <= self.epoch


def _is_in_range(prompt: Prompt, pass_rate_range: tuple[float, float] | None) -> bool:
    if pass_rate_range is None:
        return True
    value = prompt.problem.metadata.get(PASS_RATE)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(
            f"problem {prompt.problem.id} has no number in {PASS_RATE!r}, which data.sampler requires; "
            f"data.train.columns.{PASS_RATE} names another column"
        )
    return pass_rate_range[0] <= value <= pass_rate_range[1]
