"""Tokens of other libraries' conversations: the per-token fields of a row, and the texts of token ids."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from torl.base.errors import DataError
from torl.components.hub import local_tokenizer_file
from torl.components.text.vocabulary import backend_token_bytes

Decode: TypeAlias = Callable[[Sequence[int]], str]
"""A function of token ids to their text."""
Span: TypeAlias = tuple[int, int, int]
"""Start and end of a turn, and end of the observation after it."""


def model_token_bytes(model: str) -> list[bytes]:
    """Return the bytes of all tokens of a model by id. Nothing is downloaded.

    Args:
        model: Directory of the model, or its name in the Hub's cache.

    Raises:
        DataError: Its `tokenizer.json` is missing or cannot be read, or the library tokenizers is not installed.
    """
    file = local_tokenizer_file(model)
    if file is None:
        raise DataError(f"{model}: no tokenizer.json on this machine")
    try:
        from tokenizers import Tokenizer

        return backend_token_bytes(Tokenizer.from_file(str(file)))
    except ModuleNotFoundError as error:
        raise DataError("tokenizers is not installed: pip install 'torl[view]'") from error
    except Exception as error:  # the library raises Exception itself for a damaged file
        raise DataError(f"{file}: cannot be read: {error}") from error


def model_decoder(model: str) -> Decode:
    """Return the decoder of a model's tokens.

    Raises:
        DataError: The tokenizer cannot be read.
    """
    table = model_token_bytes(model)

    def decode(ids: Sequence[int]) -> str:
        found = (table[token] if 0 <= token < len(table) else b"" for token in ids)
        return b"".join(found).decode("utf-8", errors="replace")

    return decode


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
        self._mask: list[bool] = []
        self._versions: list[int] = []
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

    def _append(self, ids: Sequence[int], logprobs: Iterable[float], sampled: bool, versions: Sequence[int]) -> None:
        self.ids += ids
        self._logprobs += map(float, logprobs)
        self._mask += [sampled] * len(ids)
        self._versions += versions

    def fields(self) -> dict[str, Any]:
        """Return the per-token fields of a row."""
        numbers = {name: values + [0.0] * (len(self.ids) - len(values)) for name, values in self._numbers.items()}
        return {
            "prompt_token_ids": self.prompt,
            "token_ids": self.ids,
            "rollout_logprobs": self._logprobs,
            "loss_mask": _runs(self._mask),
            "policy_versions": _runs(self._versions),
            "token_numbers": numbers,
        }


def _runs(values: Iterable[Any]) -> list[list[Any]]:
    """Return the value and the length of each run of equal values."""
    return [[value, len(list(run))] for value, run in groupby(values)]
