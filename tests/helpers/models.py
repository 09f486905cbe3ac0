"""Small models with real-size vocabularies, made on the spot: the tests download nothing."""

import itertools
import string
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

REAL_VOCABULARY = 151_643  # Qwen2.5's, and the size its embedding is padded to
PADDED_VOCABULARY = 151_936
END = "<|endoftext|>"


def real_size_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE as large as Qwen2.5's: every byte, every pair of bytes, and triples of printable characters.

    Many of its tokens are not valid UTF-8 alone, as in real vocabularies.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = list(itertools.product(alphabet, alphabet))
    printable = [character for character in string.printable if character in alphabet]
    triples = ((a + b, c) for a, b, c in itertools.product(printable, repeat=3))
    merges = [*pairs, *itertools.islice(triples, REAL_VOCABULARY - len(alphabet) - len(pairs))]
    vocabulary = {token: index for index, token in enumerate([*alphabet, *(a + b for a, b in merges)])}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END)


def write_real_size_model(directory: Path, seed: int = 0) -> Path:
    """A randomly initialized two-layer Qwen2 in bf16 with that tokenizer, as `from_pretrained` wants it."""
    # vLLM's CPU attention takes no head narrower than 32
    return write_shape(directory, hidden=64, intermediate=128, layers=2, heads=2, groups=2, seed=seed)


def write_shape(
    directory: Path, *, hidden: int, intermediate: int, layers: int, heads: int, groups: int, seed: int = 0
) -> Path:
    """The same in any shape."""
    tokenizer = real_size_tokenizer()
    config = Qwen2Config(
        vocab_size=PADDED_VOCABULARY,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
        dtype="bfloat16",
    )
    torch.manual_seed(seed)
    Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory
