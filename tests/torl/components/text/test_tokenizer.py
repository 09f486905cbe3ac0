"""Encoding observations: no text becomes a special token, and none changes."""

import copy
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from tokenizers.normalizers import NFC
from transformers import PreTrainedTokenizerFast

from scripted_engine import ENCODER, VOCABULARY
from tokenizers_for_tests import END, byte_level_bpe, metaspace_bpe, metaspace_unigram
from torl.base.errors import DataError
from torl.components.text.tokenizer import PlainTextEncoder, load_tokenizer, stop_token_ids
from torl.components.text.vocabulary import build_vocabulary

FAMILIES = [byte_level_bpe, metaspace_bpe, metaspace_unigram]
TEXTS = [
    "\n391\n```\n",
    "391\n```\n",
    "\n[no output]\n```\n",
    "\nSyntaxError: '(' was never closed\n```\n",
    "\n ü \n```\n",
]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("text", TEXTS)
def test_the_text_of_an_observation_survives(family, text: str) -> None:
    tokenizer = family()
    vocabulary = build_vocabulary(tokenizer)
    assert vocabulary.decode(PlainTextEncoder(tokenizer, vocabulary).encode(text)) == text


@pytest.mark.parametrize("family", FAMILIES)
def test_printing_the_end_of_text_does_not_end_the_text(family) -> None:
    tokenizer = family()
    vocabulary = build_vocabulary(tokenizer)
    text = f"\nabc {END} def\n```\n"
    assert tokenizer.eos_token_id in tokenizer.encode(text, add_special_tokens=False)  # the usual way would
    ids = PlainTextEncoder(tokenizer, vocabulary).encode(text)
    assert tokenizer.eos_token_id not in ids
    assert vocabulary.decode(ids) == text


def test_the_tokenizer_itself_is_left_as_it_was() -> None:
    tokenizer = byte_level_bpe()
    before = tokenizer.backend_tokenizer.to_str()
    PlainTextEncoder(tokenizer).encode(f"x{END}")
    assert tokenizer.backend_tokenizer.to_str() == before
    assert tokenizer.encode(END, add_special_tokens=False) == [tokenizer.eos_token_id]


def test_observation_is_encoded_whole_despite_truncation_length() -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level_bpe().backend_tokenizer, eos_token=END)
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.enable_truncation(8)
    backend.enable_padding(length=4096)
    cut = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END)
    text = "\n" + "391 " * 50 + "\n```\n"
    assert len(backend.encode(text).ids) == 4096
    ids = PlainTextEncoder(cut, build_vocabulary(tokenizer)).encode(text)
    assert ids == PlainTextEncoder(tokenizer).encode(text)
    assert build_vocabulary(tokenizer).decode(ids) == text


def test_other_threads_run_while_a_long_text_is_encoded() -> None:
    """The event loop is one: it has a thousand episodes to serve at the same time."""
    with ThreadPoolExecutor(1) as thread:
        encoding = thread.submit(ENCODER.encode, "word " * 100_000)
        turns = 0
        while not encoding.done():
            time.sleep(0.001)
            turns += 1
    assert turns > 30  # a handful, where all wait for the encoder


def test_stop_tokens_come_from_every_place_that_names_one(tmp_path: Path) -> None:
    tokenizer = byte_level_bpe()
    assert stop_token_ids(tmp_path, tokenizer) == [tokenizer.eos_token_id]
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 7}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [9, 11, 7]}))
    assert stop_token_ids(tmp_path, tokenizer) == sorted({tokenizer.eos_token_id, 7, 9, 11})


def test_a_model_without_an_end_is_refused(tmp_path: Path) -> None:
    nameless = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(byte_level_bpe().backend_tokenizer.to_str()))
    with pytest.raises(DataError, match="end-of-sequence"):
        stop_token_ids(tmp_path, nameless)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DataError, match=r"config\.json"):
        stop_token_ids(tmp_path, nameless)


def test_a_directory_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such model directory"):
        load_tokenizer(tmp_path / "missing")
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(DataError, match="tokenizer cannot be read"):
        load_tokenizer(tmp_path)


def test_a_directory_that_would_lose_the_tokens_of_a_chat_is_refused(tmp_path: Path) -> None:
    """The older files alone: the library reads them, and makes plain text of every added token."""
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "merges.txt").write_text("")
    with pytest.raises(DataError, match=r"neither tokenizer\.json nor tokenizer_config\.json"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("make", [byte_level_bpe, metaspace_bpe, metaspace_unigram])
def test_program_output_is_never_an_added_token(make: Callable[[], PreTrainedTokenizerFast]) -> None:
    tokenizer = copy.deepcopy(make())
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in ("<tool_call>", "</think>")])
    added = set(tokenizer.convert_tokens_to_ids(["<tool_call>", "</think>"]))
    text = "\n<tool_call>1</think>\n```\n"
    assert added <= set(tokenizer.encode(text, add_special_tokens=False))
    ids, observed = PlainTextEncoder(tokenizer).encode_observation(text)
    assert added.isdisjoint(ids)
    assert build_vocabulary(tokenizer).decode(ids) == observed == text


def test_an_observation_is_the_text_that_its_tokens_have() -> None:
    """Qwen's tokenizers normalise: the printed text is not the text that the model reads."""
    tokenizer = copy.deepcopy(byte_level_bpe())
    tokenizer.backend_tokenizer.normalizer = NFC()
    encoder = PlainTextEncoder(tokenizer)
    ids, observed = encoder.encode_observation("\ne\u0301 \u2126\n")
    assert observed == "\n\u00e9 \u03a9\n"
    assert encoder.encode_observation(observed) == (ids, observed)


@given(st.text(st.sampled_from("a \n`é北e\u0301"), max_size=60), st.integers(0, 40))
def test_fits_compares_token_counts(text: str, max_tokens: int) -> None:
    assert ENCODER.fits(text, max_tokens) == (len(ENCODER.encode(text)) <= max_tokens)


def test_a_text_of_more_bytes_than_its_tokens_could_hold_is_not_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(_: PlainTextEncoder, text: str) -> list[int]:
        raise AssertionError(f"{len(text)} characters were encoded")

    monkeypatch.setattr(PlainTextEncoder, "encode", encode)
    longest = max(len(VOCABULARY.decode_bytes([token])) for token in range(len(VOCABULARY)))
    assert not ENCODER.fits("7" * (256 * longest + 1), 256)
    with pytest.raises(AssertionError):
        ENCODER.fits("7" * 256 * longest, 256)
