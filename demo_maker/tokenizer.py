"""The demo's tokenizer: byte-level BPE in which the tool's markers span several tokens, as in real vocabularies.

Numbers fall into chunks of up to three digits, all in the vocabulary; a newline is always a single token.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from random import Random

from tokenizers import Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Sequence, Split
from tokenizers.trainers import BpeTrainer

from demo_maker.documents import document_text, documents

VOCABULARY_SIZE = 1_876
END_OF_TEXT = "<|endoftext|>"
# A newline; up to three digits; a word or a run of punctuation with at most one space before it; other blanks.
PATTERN = r"\n|[0-9]{1,3}| ?\p{L}+| ?[^\s\p{L}0-9]+|[^\S\n]+"


def _pre_tokenizer() -> PreTokenizer:
    split = Split(Regex(PATTERN), behavior="isolated")
    return Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Learn merges on `texts` without their digits, then add every number of one to three digits."""
    numbers = [str(number).zfill(digits) for digits in (2, 3) for number in range(10**digits)]
    learner = Tokenizer(BPE())
    learner.pre_tokenizer = _pre_tokenizer()
    without_digits = str.maketrans("0123456789", "\n" * 10)
    trainer = BpeTrainer(
        vocab_size=VOCABULARY_SIZE - len(numbers) - 1,
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    learner.train_from_iterator((text.translate(without_digits) for text in texts), trainer)
    model = json.loads(learner.to_str())["model"]

    vocabulary = {token: index for index, token in enumerate(sorted(model["vocab"], key=model["vocab"].__getitem__))}
    for number in numbers:
        vocabulary[number] = len(vocabulary)
    merges = [tuple(merge) for merge in model["merges"]]
    # The numbers need no merges: a piece that is in the vocabulary is taken whole.
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=merges, ignore_merges=True))
    tokenizer.pre_tokenizer = _pre_tokenizer()
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens([END_OF_TEXT])
    return tokenizer


def end_of_text_id(tokenizer: Tokenizer) -> int:
    """The id of the one special token."""
    token_id = tokenizer.token_to_id(END_OF_TEXT)
    assert token_id is not None
    return int(token_id)


def save_tokenizer(tokenizer: Tokenizer, directory: Path) -> None:
    """Write the two files from which `transformers.PreTrainedTokenizerFast` loads it, without a network."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    configuration = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1_024,
    }
    text = json.dumps(configuration, indent=2) + "\n"
    (directory / "tokenizer_config.json").write_text(text, encoding="utf-8")


def corpus_tokenizer(seed: int, document_count: int = 4_000) -> Tokenizer:
    """The tokenizer of the corpus that `seed` gives."""

    corpus = documents(Random(seed), lambda program: False)
    return train_tokenizer(document_text(next(corpus)) for _ in range(document_count))
