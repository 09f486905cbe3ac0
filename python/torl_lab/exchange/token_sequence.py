"""The tokens of another library's conversation, as the per-token fields of a row."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

Span: TypeAlias = tuple[int, int, int]
"""Start and end of a turn, and end of the observation after it."""


class TokenSequence:
    """Tokens that are added in order: the prompt, then turns and observations.

    Attributes:
        prompt: Token ids of the prompt.
        ids: Token ids of the response.
        spans: Turns, with the end of the observation after each.
    """

    def __init__(self) -> None:
        self.prompt: list[int] = []
        self.ids: list[int] = []
        self.spans: list[Span] = []
        self._logprobs: list[float] = []
        self._mask: list[list[Any]] = []
        self._versions: list[list[int]] = []
        self._numbers: dict[str, list[float]] = {}

    def add_turn(
        self,
        ids: Sequence[int],
        logprobs: Sequence[float],
        versions: Sequence[int] | None = None,
        numbers: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        """Add sampled tokens.

        Args:
            ids: Token ids.
            logprobs: Log-probabilities of the engine.
            versions: Policy version of each token. Unset is 0.
            numbers: Other numbers of the tokens by name, such as "entropies".

        Raises:
            ValueError: The arguments differ in length.
        """
        numbers = numbers or {}
        versions = [0] * len(ids) if versions is None else versions
        if any(len(each) != len(ids) for each in (logprobs, versions, *numbers.values())):
            raise ValueError(f"{len(ids)} sampled tokens have another number of log-probabilities or other numbers")
        start = len(self.ids)
        self._append(ids, logprobs, True, versions)
        for name, values in numbers.items():
            known = self._numbers.setdefault(name, [])
            known += [0.0] * (start - len(known)) + [float(value) for value in values]
        self.spans.append((start, len(self.ids), len(self.ids)))

    def add_observation(self, ids: Sequence[int]) -> None:
        """Add tokens that the model did not sample; before the first turn they belong to the prompt."""
        if not self.spans:
            self.prompt += ids
            return
        self._append(ids, [0.0] * len(ids), False, [-1] * len(ids))
        self.spans[-1] = (*self.spans[-1][:2], len(self.ids))

    def fields(self) -> dict[str, Any]:
        """Return the per-token fields of a row."""
        numbers = {name: values + [0.0] * (len(self.ids) - len(values)) for name, values in self._numbers.items()}
        return {
            "prompt_token_ids": self.prompt,
            "token_ids": self.ids,
            "rollout_logprobs": self._logprobs,
            "loss_mask": self._mask,
            "policy_versions": self._versions,
            "token_numbers": numbers,
        }

    def _append(self, ids: Sequence[int], logprobs: Iterable[float], sampled: bool, versions: Sequence[int]) -> None:
        self.ids += ids
        self._logprobs += map(float, logprobs)
        extend_runs(self._mask, [sampled] * len(ids))
        extend_runs(self._versions, versions)


def extend_runs(runs: list[list[Any]], values: Iterable[Any]) -> None:
    """Add values to runs [value, length]."""
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
