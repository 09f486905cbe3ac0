"""The order in which a run meets its problems: shuffled epochs, with a position that can be saved."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from torl.errors import CheckpointError, DataError
from torl.types import Prompt


class PromptSampler:
    """An endless stream over the prompts of a problem set: every epoch holds each once, in an order of its own.

    The order of an epoch depends on (seed, epoch, problem ids) alone: prompts are sorted by a hash of the
    three, so it is the same on every machine and under every version of Python and numpy.
    """

    def __init__(self, prompts: Sequence[Prompt], seed: int) -> None:
        """Start at the beginning of epoch 0.

        Raises:
            DataError: there are no prompts, or two problems have the same id.
        """
        if not prompts:
            raise DataError("there are no problems to sample from")
        if len({prompt.problem.id for prompt in prompts}) != len(prompts):
            raise DataError("two problems have the same id")
        self._prompts = tuple(prompts)
        self._seed = seed
        self._epoch = 0
        self._position = 0
        self._order = self._shuffled()

    def __len__(self) -> int:
        """Prompts in one epoch."""
        return len(self._prompts)

    @property
    def epoch(self) -> int:
        """Epochs begun so far, less one."""
        return self._epoch

    def take(self, count: int) -> list[Prompt]:
        """The next `count` prompts; a new epoch begins where the old one ends, so none is left out."""
        taken: list[Prompt] = []
        while len(taken) < count:
            if self._position == len(self._order):
                self._epoch += 1
                self._position = 0
                self._order = self._shuffled()
            piece = self._order[self._position : self._position + count - len(taken)]
            self._position += len(piece)
            taken.extend(piece)
        return taken

    def state_dict(self) -> dict[str, Any]:
        """The position, as plain JSON; `problems` is a fingerprint of the problem ids, in their order."""
        return {
            "seed": self._seed,
            "epoch": self._epoch,
            "position": self._position,
            "problems": self._fingerprint(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where the sampler that wrote `state` stood.

        Raises:
            CheckpointError: the state is of other problems or another seed, or damaged.
        """
        if state.get("problems") != self._fingerprint():
            raise CheckpointError("the checkpoint was written with other problems than data.train holds now")
        if state.get("seed") != self._seed:
            raise CheckpointError(f"the checkpoint was written with seed {state.get('seed')}, not {self._seed}")
        epoch, position = state.get("epoch"), state.get("position")
        if not isinstance(epoch, int) or not isinstance(position, int) or not 0 <= position <= len(self) or epoch < 0:
            raise CheckpointError(f"the checkpoint's data position is damaged: epoch {epoch}, position {position}")
        self._epoch, self._position = epoch, position
        self._order = self._shuffled()

    def _shuffled(self) -> tuple[Prompt, ...]:
        def key(prompt: Prompt) -> bytes:
            return hashlib.blake2b(f"{self._seed}/{self._epoch}/{prompt.problem.id}".encode(), digest_size=16).digest()

        return tuple(sorted(self._prompts, key=key))

    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for prompt in self._prompts:
            digest.update(prompt.problem.id.encode())
            digest.update(b"\0")
        return digest.hexdigest()
