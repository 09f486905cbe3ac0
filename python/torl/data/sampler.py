"""The order in which a run meets its problems: shuffled epochs, with a position that can be saved."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol

from torl.errors import CheckpointError, DataError
from torl.types import Prompt


class Sampler(Protocol):
    """The order in which a run meets its prompts: an endless stream, with a position that can be saved."""

    def __len__(self) -> int:
        """Prompts that can be taken at once."""
        ...

    @property
    def epoch(self) -> int:
        """Epochs begun so far, less one."""
        ...

    def take(self, count: int) -> list[Prompt]:
        """The next `count` prompts, no two alike."""
        ...

    def record_accuracies(self, accuracies: Mapping[str, float]) -> None:
        """Take note of how much of each problem's group was correct, by the problems' ids."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The position, as plain JSON."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where the sampler that wrote `state` stood; raises `CheckpointError` if it cannot."""
        ...


class PromptSampler:
    """An endless stream over the prompts of a problem set: every epoch holds each once, in an order of its own.

    The order of an epoch depends on (seed, epoch, problem ids): prompts are sorted by a hash of the three, so it
    is the same on every machine and under every version of Python and numpy. What is taken at once never holds
    a prompt twice: where it reaches into the next epoch, the prompts it holds already come right after it there.
    """

    kind = "shuffled"
    """Its name in checkpoints."""

    def __init__(self, prompts: Iterable[Prompt], seed: int) -> None:
        """Start at the beginning of epoch 0.

        Raises:
            DataError: there are no prompts, or two problems have the same id; whatever reading them raises.
        """
        self._prompts = tuple(prompts)
        if not self._prompts:
            raise DataError("there are no problems to sample from")
        if len({prompt.problem.id for prompt in self._prompts}) != len(self._prompts):
            raise DataError("two problems have the same id")
        self._seed = seed
        self._epoch = 0
        self._position = 0
        # The problems at the end of the last epoch that were taken together with the first `_shared` of this one.
        self._deferred: tuple[str, ...] = ()
        self._shared = 0
        self._order = self._arranged()

    def __len__(self) -> int:
        """Prompts in one epoch."""
        return len(self._prompts)

    @property
    def epoch(self) -> int:
        """Epochs begun so far, less one."""
        return self._epoch

    def take(self, count: int) -> list[Prompt]:
        """The next `count` prompts, no two alike; a new epoch begins where the old one ends, so none is left out.

        Raises:
            ValueError: there are not that many prompts.
        """
        if count > len(self):
            raise ValueError(f"{count} prompts were asked for, there are {len(self)}")
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
        """Take note of how much of each problem's group was correct, by the problems' ids; this sampler need not."""

    def state_dict(self) -> dict[str, Any]:
        """The position, as plain JSON; `problems` is a fingerprint of ids, questions and answers."""
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
        """Continue exactly where the sampler that wrote `state` stood.

        Raises:
            CheckpointError: the state is of other problems, another seed or another sampler, or damaged.
        """
        if state.get("sampler") != self.kind:
            raise CheckpointError(
                f"the checkpoint was written with data.sampler {state.get('sampler')}, not {self.kind}"
            )
        if state.get("problems") != self._fingerprint:
            raise CheckpointError("the checkpoint was written with other problems than data.train holds now")
        if state.get("seed") != self._seed:
            raise CheckpointError(f"the checkpoint was written with seed {state.get('seed')}, not {self._seed}")
        numbers = [state.get(name) for name in ("epoch", "position", "shared")]
        deferred = state.get("deferred")
        known = {prompt.problem.id for prompt in self._prompts}
        if (
            not all(isinstance(number, int) and number >= 0 for number in numbers)
            or not isinstance(deferred, list)
            or not known.issuperset(deferred)
            or state["position"] > len(self)
        ):
            shown = {name: value for name, value in state.items() if name != "problems"}
            raise CheckpointError(f"the checkpoint's data position is damaged: {shown}")
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
            row = json.dumps([problem.id, problem.question, problem.answer])  # of any text, unambiguous
            digest.update(row.encode())
        return digest.hexdigest()
