"""Samplers of prompts, and the default sampler of shuffled epochs."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol

from torl.base.errors import CheckpointError, DataError
from torl.base.types import Prompt


class Sampler(Protocol):
    """An endless stream of prompts whose position can be saved and restored."""

    def __len__(self) -> int:
        """Return the maximum number of prompts of one `take`."""
        ...

    @property
    def epoch(self) -> int:
        """Index of the current epoch."""
        ...

    def take(self, count: int) -> list[Prompt]:
        """Return the next `count` distinct prompts."""
        ...

    def record_accuracies(self, accuracies: Mapping[str, float]) -> None:
        """Record the accuracy of each problem's group, by problem id."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain JSON."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the position from `state`.

        Raises:
            CheckpointError: The state does not match the sampler or its problems, or is damaged.
        """
        ...


def require_available(count: int, available: int) -> None:
    """Raise `ValueError` if a `take` asks for more prompts than there are."""
    if count > available:
        raise ValueError(f"cannot take {count} prompts at once: only {available} are available")


def require_equal(name: str, recorded: object, value: object) -> None:
    """Raise `CheckpointError` if a checkpoint was written with another value."""
    if recorded != value:
        raise CheckpointError(f"the checkpoint was written with {name} {recorded}, not {value}")


class PromptSampler:
    """Shuffled epochs over the prompts of a problem set.

    Prompts are sorted by a hash of (seed, epoch, problem id), so the order is the same on every machine and with every
    version of Python and numpy. Prompts of one `take` are distinct: if it reaches into the next epoch, prompts that it
    already contains come directly after it there.
    """

    kind = "shuffled"
    """Name in checkpoints."""
    contents = "problems than data.train contains"
    """Contents in errors."""

    def __init__(self, prompts: Iterable[Prompt], seed: int) -> None:
        """Start at the beginning of epoch 0.

        Raises:
            DataError: `prompts` is empty, or two problems have the same id.
        """
        self._prompts = tuple(prompts)
        if not self._prompts:
            raise DataError("there are no problems to sample from")
        ids = Counter(prompt.problem.id for prompt in self._prompts)
        if len(ids) != len(self._prompts):
            raise DataError(f"two problems have the same id, {ids.most_common(1)[0][0]!r}; ids must be unique")
        self._seed = seed
        self._epoch = 0
        self._position = 0
        # Problems at the end of the last epoch that were taken together with the first `_shared` ones of this epoch.
        self._deferred: tuple[str, ...] = ()
        self._shared = 0
        self._order = self._arranged()

    def __len__(self) -> int:
        """Return the number of prompts in an epoch."""
        return len(self._prompts)

    @property
    def epoch(self) -> int:
        """Index of the current epoch."""
        return self._epoch

    def take(self, count: int) -> list[Prompt]:
        """Return the next `count` distinct prompts, across the boundary of epochs if necessary.

        Raises:
            ValueError: `count` exceeds the number of prompts.
        """
        require_available(count, len(self))
        taken = list(self._order[self._position : self._position + count])
        self._position += len(taken)
        missing = count - len(taken)
        if missing:
            self._epoch += 1
            self._deferred = tuple(prompt.problem.id for prompt in taken)
            self._shared = missing
            self._order = self._arranged()
            self._position = missing
            taken += self._order[:missing]
        return taken

    def record_accuracies(self, accuracies: Mapping[str, float]) -> None:
        """Do nothing: the order does not depend on accuracies."""

    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain JSON. `problems` is a hash of ids, questions and answers."""
        return {
            "sampler": self.kind,
            "seed": self._seed,
            "epoch": self._epoch,
            "position": self._position,
            "deferred": list(self._deferred),
            "shared": self._shared,
            "problems": self._fingerprint,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the position from `state`.

        Raises:
            CheckpointError: The state has other problems, another seed or another sampler, or is damaged.
        """
        require_equal("data.sampler", state.get("sampler"), self.kind)
        if state.get("problems") != self._fingerprint:
            raise CheckpointError(f"the checkpoint was written with other {self.contents} now")
        require_equal("seed", state.get("seed"), self._seed)
        numbers = [state.get(name) for name in ("epoch", "position", "shared")]
        deferred = state.get("deferred")
        known = {prompt.problem.id for prompt in self._prompts}
        if (
            not all(isinstance(number, int) and number >= 0 for number in numbers)
            or not isinstance(deferred, list)
            or not known.issuperset(deferred)
            or state["position"] > len(self)
        ):
            fields = {name: value for name, value in state.items() if name != "problems"}
            raise CheckpointError(f"the checkpoint's data position is damaged: {fields}")
        self._epoch, self._position, self._shared = state["epoch"], state["position"], state["shared"]
        self._deferred = tuple(deferred)
        self._order = self._arranged()

    def _arranged(self) -> tuple[Prompt, ...]:
        def key(prompt: Prompt) -> bytes:
            return hashlib.blake2b(f"{self._seed}/{self._epoch}/{prompt.problem.id}".encode(), digest_size=16).digest()

        order = sorted(self._prompts, key=key)
        deferred = set(self._deferred)
        first = [prompt for prompt in order if prompt.problem.id not in deferred]
        later = [prompt for prompt in order if prompt.problem.id in deferred]
        return (*first[: self._shared], *later, *first[self._shared :])

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for problem in sorted((prompt.problem for prompt in self._prompts), key=lambda problem: problem.id):
            row = json.dumps([problem.id, problem.question, problem.answer])  # unambiguous for any text
            digest.update(row.encode())
        return digest.hexdigest()
