"""A sampler for problem sets that exceed memory, which shuffles within a buffer."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torl.base.errors import CheckpointError, DataError
from torl.base.types import Prompt
from torl.components.data.sampler import require_available, require_equal


class StreamSampler:
    """Epochs over streamed prompts, shuffled within a buffer.

    The next prompt is drawn from the buffer and replaced by the next one in the file. Every epoch contains each prompt
    once, at most the size of the buffer earlier than in the file. Draws depend on the seed, the epoch and the number
    of draws. A resumed run reads the epoch again up to its position. Prompts of one `take` are distinct: a copy that
    meets its original in the buffer or in a `take` is skipped.
    """

    kind = "stream"
    """Name in checkpoints."""

    def __init__(self, prompts: Iterable[Prompt], seed: int, buffer_size: int = 10_000) -> None:
        """Fill the buffer for epoch 0.

        Args:
            prompts: Prompts, in the same order in each iteration.
            seed: Random seed of the order.
            buffer_size: Number of prompts in the buffer. Sorted files need a large buffer.

        Raises:
            DataError: `prompts` is empty, a row is invalid, or two problems in the buffer have the same id.
        """
        if buffer_size < 1:
            raise DataError(f"data.sampler.buffer_size = {buffer_size} must be at least 1")
        self._prompts, self._seed, self._size = prompts, seed, buffer_size
        self._begin(0)
        self._max_take = len(self._buffer)
        if not self._max_take:
            raise DataError("there are no problems to sample from")

    def __len__(self) -> int:
        """Return the size of the buffer, or the number of prompts if there are fewer."""
        return self._max_take

    @property
    def epoch(self) -> int:
        """Index of the current epoch."""
        return self._epoch

    def take(self, count: int) -> list[Prompt]:
        """Return the next `count` distinct prompts, across the boundary of epochs if necessary.

        Raises:
            ValueError: `count` exceeds the size of the buffer.
            DataError: A row is invalid, or two problems have the same id.
        """
        require_available(count, len(self))
        taken: dict[str, Prompt] = {}
        while missing := count - len(taken):
            if not self._buffer:
                self._begin(self._epoch + 1, deferred=frozenset(taken), shared=missing)
            prompt = self._draw()
            if taken.setdefault(prompt.problem.id, prompt) is not prompt:
                _require_copy(taken[prompt.problem.id], prompt)
                self._shared += self._drawn <= self._shared  # another draw replaces it in this `take`
        return list(taken.values())

    def record_accuracies(self, accuracies: Mapping[str, float]) -> None:
        """Do nothing: the order does not depend on accuracies."""

    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain JSON. `problems` is a hash of the part of the epoch that was read."""
        return {
            "sampler": self.kind,
            "seed": self._seed,
            "buffer_size": self._size,
            "epoch": self._epoch,
            "drawn": self._drawn,
            "deferred": sorted(self._deferred),
            "shared": self._shared,
            "problems": self._digest.hexdigest(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the position from `state`, which reads the epoch again up to it.

        Raises:
            CheckpointError: The state has other problems, another seed, buffer or sampler, or is damaged.
            DataError: A row is invalid.
        """
        require_equal("data.sampler", state.get("sampler"), self.kind)
        require_equal("seed", state.get("seed"), self._seed)
        require_equal("buffer_size", state.get("buffer_size"), self._size)
        numbers = [state.get(name) for name in ("epoch", "drawn", "shared")]
        deferred = state.get("deferred")
        is_position = all(isinstance(number, int) and number >= 0 for number in numbers)
        if not is_position or not isinstance(deferred, list) or len(deferred) > len(self):
            raise CheckpointError(f"the checkpoint's data position is damaged: {dict(state)}")
        self._begin(state["epoch"], deferred=frozenset(deferred), shared=state["shared"])
        while self._drawn < state["drawn"] and self._buffer:
            self._draw()
        if (self._drawn, self._digest.hexdigest()) != (state["drawn"], state.get("problems")):
            raise CheckpointError("the checkpoint was written with other problems than data.train contains now")

    def _begin(self, epoch: int, *, deferred: frozenset[str] = frozenset(), shared: int = 0) -> None:
        """Start an epoch whose first `shared` prompts are taken together with `deferred` of the last epoch."""
        self._epoch, self._deferred, self._shared = epoch, deferred, shared
        self._drawn = 0
        self._digest = hashlib.sha256()
        self._unread: Iterator[Prompt] = iter(self._prompts)
        self._buffer: list[Prompt] = []
        self._buffered: dict[str, Prompt] = {}
        self._fill()

    def _fill(self) -> None:
        while len(self._buffer) < self._size and (prompt := next(self._unread, None)) is not None:
            problem = prompt.problem
            if problem.id in self._buffered:
                _require_copy(self._buffered[problem.id], prompt)
                continue
            self._buffered[problem.id] = prompt
            self._buffer.append(prompt)
            self._digest.update(json.dumps([problem.id, problem.question, problem.answer]).encode())

    def _draw(self) -> Prompt:
        digest = hashlib.blake2b(f"{self._seed}/{self._epoch}/{self._drawn}".encode(), digest_size=8).digest()
        index = int.from_bytes(digest) % len(self._buffer)
        if self._drawn < self._shared:
            places = ((index + step) % len(self._buffer) for step in range(len(self._buffer)))
            index = next((place for place in places if self._buffer[place].problem.id not in self._deferred), index)
        prompt, self._buffer[index] = self._buffer[index], self._buffer[-1]
        self._buffer.pop()
        del self._buffered[prompt.problem.id]
        self._drawn += 1
        self._fill()
        return prompt


def _require_copy(first: Prompt, second: Prompt) -> None:
    one, other = first.problem, second.problem
    if (one.question, one.answer) != (other.question, other.answer):
        raise DataError(f"two problems have the same id, {other.id!r}")
