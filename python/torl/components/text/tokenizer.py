"""The tokenizer of a model directory, loaded offline, and an encoder for text that must stay plain text."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torl._core import Vocabulary
from torl.base.errors import DataError
from torl.base.inputs import parse_json, read_file
from torl.base.types import Markup, ObservationText
from torl.components.text.vocabulary import build_vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_PROBE = "\n391\n```\n"
_ANCHOR = "\n"


def load_tokenizer(model: Path) -> "PreTrainedTokenizerFast":
    """Load the fast tokenizer of a model directory from its `tokenizer.json`, without network access.

    `AutoTokenizer` is used only without this file: for some model types, Qwen2 among them, it reads the vocabulary from
    the file and replaces its splitting rules with those of the type's published models.

    Raises:
        DataError: The directory has no readable tokenizer.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if not model.is_dir():
        raise DataError(f"{model}: no such model directory")
    if not any((model / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
        raise DataError(
            f"{model}: holds neither tokenizer.json nor tokenizer_config.json; without them a tokenizer loses the "
            "tokens added to its vocabulary, those of a chat among them: copy them from where the model came from"
        )
    try:
        loader = PreTrainedTokenizerFast if (model / "tokenizer.json").is_file() else AutoTokenizer
        tokenizer: PreTrainedTokenizerFast = loader.from_pretrained(
            model, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{model}: its tokenizer cannot be read: {reason}") from error
    return tokenizer


def stop_token_ids(model: Path, tokenizer: "PreTrainedTokenizerFast", format_ends: Sequence[str] = ()) -> list[int]:
    """Return the tokens that end a response: the tokenizer's, those of generation_config.json and config.json, and
    those that the format of a run ends a turn with.

    Raises:
        DataError: The model names no such token, so that a response could only end at its limit, or the vocabulary
            lacks a token of the format.
    """
    own = control_token_ids(tokenizer, format_ends)
    stop_ids = {tokenizer.eos_token_id} - {None}
    for name in ("generation_config.json", "config.json"):
        path = model / name
        if not path.is_file():
            continue
        try:
            value: Any = parse_json(read_file(path)).get("eos_token_id")
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read: {error}") from error
        stop_ids.update(value if isinstance(value, list) else [] if value is None else [value])
    if not stop_ids:
        raise DataError(f"{model}: neither the tokenizer nor the model's configuration names an end-of-sequence token")
    return sorted(stop_ids.union(own))


def control_token_ids(tokenizer: "PreTrainedTokenizerFast", tokens: Sequence[str]) -> list[int]:
    """Return the ids of tokens that were added to the vocabulary.

    Raises:
        DataError: The vocabulary lacks one of them.
    """
    added = {token.content: index for index, token in tokenizer.backend_tokenizer.get_added_tokens_decoder().items()}
    missing = [token for token in tokens if token not in added]
    if missing:
        raise DataError(
            f"the model's tokenizer has no token {', '.join(missing)}, which the format of the run writes calls with: "
            "choose the format of the model's family (rollout.format), or add these tokens to its vocabulary"
        )
    return [added[token] for token in tokens]


class PlainTextEncoder:
    """An encoder of plain text: printed text can never become a control token.

    Text never becomes a token that was added to the vocabulary, be it `</think>`, `<tool_call>` or a special token.

    An observation is encoded alone, because it is put between tokens that exist already. A normalizer (Qwen's NFC) may
    change characters; SentencePiece's space before a text is removed.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerFast", vocabulary: Vocabulary | None = None) -> None:
        """Copy the tokenizer's backend.

        Raises:
            DataError: The end of an output block does not decode to the same bytes after encoding.
        """
        from tokenizers import Tokenizer

        vocabulary = vocabulary or build_vocabulary(tokenizer)
        self._vocabulary = vocabulary
        backend = tokenizer.backend_tokenizer
        self._backend = Tokenizer(backend.model)
        for part in ("normalizer", "pre_tokenizer"):
            if (kept := getattr(backend, part)) is not None:
                setattr(self._backend, part, kept)
        self._longest_token = max(len(vocabulary.decode_bytes([token])) for token in range(len(vocabulary)))
        self._special = frozenset(tokenizer.all_special_ids)
        self._added_ids = {token.content: index for index, token in backend.get_added_tokens_decoder().items()}
        # The longest first: one may begin with another.
        spelled = sorted(self._added_ids, key=lambda token: (-len(token), token))
        self._added = re.compile(f"({'|'.join(map(re.escape, spelled))})" if spelled else "(?!)()")
        self._anchor: list[int] = []
        self._prefix = ""
        if vocabulary.decode_bytes(self.encode(_PROBE)) != _PROBE.encode():
            self._anchor = self._backend.encode(_ANCHOR, add_special_tokens=False).ids
            self._prefix = _ANCHOR
            if vocabulary.decode_bytes(self.encode(_PROBE)) != _PROBE.encode():
                raise DataError("the tokenizer cannot encode an observation on its own: its text would change")

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, without special tokens.

        Raises:
            DataError: The tokenizer made a special token of it nevertheless.
        """
        # `encode` holds the interpreter's lock, and so blocks all threads; `encode_batch_fast` releases it.
        ids: list[int] = self._backend.encode_batch_fast([self._prefix + text], add_special_tokens=False)[0].ids
        if self._prefix:
            if ids[: len(self._anchor)] != self._anchor:
                raise DataError(f"the tokenizer does not encode {text!r} separately from the text before it")
            ids = ids[len(self._anchor) :]
        if not self._special.isdisjoint(ids):
            raise DataError(f"the tokenizer turned plain text into special tokens: {text!r}")
        return ids

    def encode_observation(self, observation: ObservationText) -> tuple[list[int], str]:
        """Return the ids of an observation, and their text, which a normalizer may have changed.

        Added tokens that its `Markup` spells become these tokens, as in a chat template. The text between two of them
        is encoded as a whole.
        """
        ids = []
        for text, token in self._between_tokens([observation] if isinstance(observation, str) else observation):
            ids += [*self.encode(text), *token]
        return ids, self._vocabulary.decode(ids)

    def encode_prompt(self, parts: Sequence[str | Markup]) -> list[int]:
        """Return the ids of a document that begins with these parts, read like the parts of an observation."""
        ids = []
        for place, (text, token) in enumerate(self._between_tokens(parts)):
            first = place == 0 and text  # has SentencePiece's space before a document
            encoded = self._backend.encode(text, add_special_tokens=False).ids if first else self.encode(text)
            ids += [*encoded, *token]
        return ids

    def _between_tokens(self, parts: Sequence[str | Markup]) -> Iterator[tuple[str, list[int]]]:
        """Yield texts to encode as a whole, each with the id of the added token after it; none after the last."""
        text = ""
        for part in parts:
            pieces = self._added.split(part.text) if isinstance(part, Markup) else [part]
            for place, piece in enumerate(pieces):
                if place % 2 == 0:
                    text += piece
                else:
                    yield text, [self._added_ids[piece]]
                    text = ""
        yield text, []

    def fits(self, observation: ObservationText, max_tokens: int) -> bool:
        """Whether an observation has at most `max_tokens` ids. A text with too many bytes for them is not encoded."""
        if not isinstance(observation, str):
            return len(self.encode_observation(observation)[0]) <= max_tokens
        text, normalizer = observation, self._backend.normalizer
        normalized = text if normalizer is None else normalizer.normalize_str(text)
        if len(normalized.encode()) > self.max_bytes(max_tokens):
            return False
        return len(self.encode(text)) <= max_tokens

    def max_bytes(self, max_tokens: int) -> int:
        """Return the maximum number of bytes of `max_tokens` ids."""
        return max_tokens * self._longest_token
