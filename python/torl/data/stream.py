"""An order for problems that do not fit into the memory: read as they come, shuffled within a buffer."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torl.errors import CheckpointError, DataError
from torl.types import Prompt


class StreamSampler:
    """An endless stream over prompts that are read one after the other, of which a buffer is held.

    The next prompt is drawn from the buffer, and the next that is read takes its place: every epoch holds each prompt
    once, none earlier than the size of the buffer before its place in the file. What is drawn depends on the seed, the
    epoch and how many were drawn, so that a resumed run continues exactly: it reads the epoch again up to where it
    stood. What is taken at once never holds a prompt twice.
    """

    kind = "stream"
    """Its name in checkpoints."""

    def __init__(self, prompts: Iterable[Prompt], seed: int, buffer_size: int = 10_000) -> None:
        """Fill the buffer for epoch 0.

        Args:
            prompts: the same in the same order each time that they are read.
            seed: of the order.
            buffer_size: prompts that are held, out of which the next is drawn; a file that is sorted needs a large one.

        Raises:
            DataError: there are no prompts, or two in the buffer have the same id; whatever reading them raises.
        """
        if buffer_size < 1:
            raise DataError(f"data.sampler.buffer_size must be at least 1, not {buffer_size}")
        self._prompts, self._seed, self._size = prompts, seed, buffer_size
        self._begin(0)
        self._at_once = len(self._held)
        if not self._at_once:
            raise DataError("there are no problems to sample from")

    def __len__(self) -> int:
        """Prompts that can be taken at once: the size of the buffer, or all that there are."""
        return self._at_once

    @property
    def epoch(self) -> int:
        """Epochs begun so far, less one."""
        return self._epoch

    def take(self, count: int) -> list[Prompt]:
        """The next `count` prompts, no two alike; a new epoch begins where the old one ends, so none is left out.

        Raises:
            ValueError: there are not that many prompts in the buffer.
            DataError: two have the same id; whatever reading them raises.
        """
        if count > len(self):
            raise ValueError(f"{count} prompts were asked for, there are {len(self)}")
        taken: dict[str, Prompt] = {}
        for missing in range(count, 0, -1):
            if not self._held:
                self._begin(self._epoch + 1, deferred=frozenset(taken), shared=missing)
            prompt = self._draw()
            if prompt.problem.id in taken:
                raise DataError(f"two problems have the same id, {prompt.problem.id!r}")
            taken[prompt.problem.id] = prompt
        return list(taken.values())

    def record_accuracies(self, accuracies: Mapping[str, float]) -> None:
        """Nothing is learned of problems that are read once in an epoch."""

    def state_dict(self) -> dict[str, Any]:
        """The position, as plain JSON; `problems` is a fingerprint of what was read of the epoch."""
        return {
            "sampler": self.kind,
            "seed": self._seed,
            "buffer": self._size,
            "epoch": self._epoch,
            "drawn": self._drawn,
            "deferred": sorted(self._deferred),
            "shared": self._shared,
            "problems": self._digest.hexdigest(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where the sampler that wrote `state` stood: reads the epoch again up to there.

        Raises:
            CheckpointError: the state is of other problems, another seed, buffer or sampler, or damaged.
            DataError: whatever reading raises.
        """
        if state.get("sampler") != self.kind:
            raise CheckpointError(
                f"the checkpoint was written with data.sampler {state.get('sampler')}, not {self.kind}"
            )
        for name, own in (("seed", self._seed), ("buffer", self._size)):
            if state.get(name) != own:
                raise CheckpointError(f"the checkpoint was written with {name} {state.get(name)}, not {own}")
        numbers = [state.get(name) for name in ("epoch", "drawn", "shared")]
        deferred = state.get("deferred")
        if not all(isinstance(number, int) and number >= 0 for number in numbers) or not isinstance(deferred, list):
            raise CheckpointError(f"the checkpoint's data position is damaged: {dict(state)}")
        if len(deferred) + state["shared"] > len(self):
            raise CheckpointError(f"the checkpoint's data position is damaged: {dict(state)}")
        self._begin(state["epoch"], deferred=frozenset(deferred), shared=state["shared"])
        while self._drawn < state["drawn"] and self._held:
            self._draw()
        if (self._drawn, self._digest.hexdigest()) != (state["drawn"], state.get("problems")):
            raise CheckpointError("the checkpoint was written with other problems than data.train gives now")

    def _begin(self, epoch: int, *, deferred: frozenset[str] = frozenset(), shared: int = 0) -> None:
        """Read from the start; the first `shared` prompts are taken together with `deferred` of the epoch before."""
        self._epoch, self._deferred, self._shared = epoch, deferred, shared
        self._drawn = 0
        self._digest = hashlib.sha256()
        self._unread: Iterator[Prompt] = iter(self._prompts)
        self._held: list[Prompt] = []
        self._held_ids: set[str] = set()
        self._fill()

    def _fill(self) -> None:
        while len(self._held) < self._size and (prompt := next(self._unread, None)) is not None:
            problem = prompt.problem
            if problem.id in self._held_ids:
                raise DataError(f"two problems have the same id, {problem.id!r}")
            self._held_ids.add(problem.id)
            self._held.append(prompt)
            self._digest.update(json.dumps([problem.id, problem.question, problem.answer]).encode())

    def _draw(self) -> Prompt:
        chance = hashlib.blake2b(f"{self._seed}/{self._epoch}/{self._drawn}".encode(), digest_size=8).digest()
        place = int.from_bytes(chance) % len(self._held)
        if self._drawn < self._shared:
            while self._held[place].problem.id in self._deferred:
                place = (place + 1) % len(self._held)
        prompt, self._held[place] = self._held[place], self._held[-1]
        self._held.pop()
        self._held_ids.remove(prompt.problem.id)
        self._drawn += 1
        self._fill()
        return prompt
