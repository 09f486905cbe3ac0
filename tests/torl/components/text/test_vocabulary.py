"""The bytes of each token are the tokenizer's own: joined, they are what it decodes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from models import REAL_VOCABULARY, real_size_tokenizer
from tokenizers_for_tests import END, byte_level_bpe, metaspace_bpe, metaspace_unigram
from torl._core import Vocabulary
from torl.base.errors import DataError
from torl.components.text.vocabulary import build_vocabulary, token_bytes

FAMILIES = [byte_level_bpe, metaspace_bpe, metaspace_unigram]
texts = st.one_of(
    st.text(max_size=40),
    st.text(alphabet=" \n\t`aoutpyhn1é北🙂", max_size=40),
    st.lists(st.sampled_from(["```python\n", "```output", "<tool call>", "  ", "Größe", "<0x41>"])).map("".join),
)


@settings(max_examples=300)
@given(st.sampled_from(FAMILIES), texts)
def test_encoded_text_is_restored(family, text) -> None:
    tokenizer = family()
    ids = tokenizer.encode(text, add_special_tokens=False)
    # A SentencePiece decoder takes spaces from the first token of a text: here that is a letter.
    ids = [tokenizer.convert_tokens_to_ids("x"), *ids]
    joined = Vocabulary(token_bytes(tokenizer)).decode(ids)
    assert joined == tokenizer.decode(ids, skip_special_tokens=True)
    # What SentencePiece's own symbols in a text become (a blank, a byte) is the tokenizer's affair.
    if "▁" not in text and "<0x" not in text:
        assert joined[1:] in (text, " " + text)


@settings(max_examples=300)
@given(st.lists(st.integers(0, 387), max_size=20))
def test_ids_in_any_order(ids) -> None:
    tokenizer = byte_level_bpe()
    assert Vocabulary(token_bytes(tokenizer)).decode(ids) == tokenizer.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("family", [metaspace_bpe, metaspace_unigram])
def test_every_token_in_the_middle_of_a_text(family) -> None:
    """Inside of a text nothing is stripped; bytes that are not a character alone decode to U+FFFD in both."""
    tokenizer = family()
    table = token_bytes(tokenizer)
    letter = tokenizer.convert_tokens_to_ids("x")
    for index, content in enumerate(table):
        middle = tokenizer.decode([letter, index, letter], skip_special_tokens=True)[1:-1]
        assert content.decode(errors="replace") == middle, tokenizer.convert_ids_to_tokens(index)
    assert sum(len(content) == 1 for content in table) >= 256


def test_special_tokens_are_never_text_and_added_ones_are() -> None:
    tokenizer = byte_level_bpe()
    table = token_bytes(tokenizer)
    assert table[tokenizer.eos_token_id] == b""
    assert table[tokenizer.convert_tokens_to_ids("<tool call>")] == b"<tool call>"
    ids = tokenizer.encode(f"a{END}<tool call>b", add_special_tokens=False)
    assert build_vocabulary(tokenizer).decode(ids) == "a<tool call>b"


def test_ids_beyond_the_tokenizer_are_empty() -> None:
    vocabulary = build_vocabulary(byte_level_bpe())
    assert vocabulary.decode_bytes([len(vocabulary), 10**6]) == b""


def test_a_vocabulary_of_real_size() -> None:
    tokenizer = real_size_tokenizer()
    vocabulary = build_vocabulary(tokenizer)
    assert len(vocabulary) == REAL_VOCABULARY + 1
    text = "```python\nprint('Größe 北京 🙂')\n```\n```output"
    assert vocabulary.decode(tokenizer.encode(text)) == text


def _wrapped(decoder, normalizer=None) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE({"a": 0, "<unk>": 1}, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if decoder is not None:
        tokenizer.decoder = decoder
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        (None, "no decoder"),
        (decoders.WordPiece(), "WordPiece.*not supported"),
        (decoders.Sequence([decoders.ByteLevel(), decoders.WordPiece()]), "ByteLevel.*not supported"),
        (decoders.Sequence([decoders.Strip(" ", 1, 0)]), "Strip.*not supported"),
        (decoders.Fuse(), "does not keep newlines"),  # understood, and useless for tool calls
    ],
)
def test_tokenizers_that_cannot_serve(decoder, message) -> None:
    with pytest.raises(DataError, match=message):
        build_vocabulary(_wrapped(decoder))


def test_a_tokenizer_without_a_fast_backend() -> None:
    with pytest.raises(DataError, match="no fast backend"):
        token_bytes(object())  # type: ignore[arg-type]


def test_gaps_between_ids_are_empty() -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 5}, []))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken("<é>", special=False)])
    table = token_bytes(PreTrainedTokenizerFast(tokenizer_object=tokenizer))
    assert table == [b"a", b"", "<é>".encode(), b"", b"", b"b"]
