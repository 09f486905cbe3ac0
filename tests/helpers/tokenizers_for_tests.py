"""Tokenizers of the two families in use, trained on the spot, and invented vocabularies."""

import copy
import json
from functools import cache
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END = "<|endoftext|>"
CHATML = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.role == 'assistant' %}{% generation %}{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>{% endfor %}"
    "<|im_end|>{% endgeneration %}\n{% else %}{{ message.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CORPUS = (
    "Let us compute the sum with Python, step by step.\n",
    "```python\nfrom math import gcd\n\nfor x in range(10):\n    print(gcd(12, x))\n```\n```output\n12\n1\n```\n",
    "So the answer is \\boxed{12}. Größe, naïve café, 北京 и Москва: π ≈ 3.14 🙂\n",
)


@cache
def byte_level_bpe(size: int = 400) -> PreTrainedTokenizerFast:
    """GPT-2's family: bytes as characters. The markers span several tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS * 4, trainer)
    tokenizer.add_tokens([AddedToken("<tool call>", special=False, normalized=False)])
    return _wrap(tokenizer)


@cache
def metaspace_bpe() -> PreTrainedTokenizerFast:
    """Llama 2's family: SentencePiece's BPE, blanks as U+2581, unknown characters as bytes."""
    learner = Tokenizer(models.BPE(unk_token="<unk>"))
    learner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    learner.train_from_iterator(CORPUS * 4, trainers.BpeTrainer(**_sentencepiece()))
    model = json.loads(learner.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    tokenizer = Tokenizer(models.BPE(model["vocab"], merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = learner.normalizer
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>"])
    return _wrap(tokenizer)


@cache
def metaspace_unigram() -> PreTrainedTokenizerFast:
    """SentencePiece's unigram model with byte fallback and a Metaspace decoder."""
    learner = Tokenizer(models.Unigram())
    learner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    learner.train_from_iterator(CORPUS * 4, trainers.UnigramTrainer(**_sentencepiece(), unk_token="<unk>"))
    pieces = [tuple(piece) for piece in json.loads(learner.to_str())["model"]["vocab"]]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = learner.pre_tokenizer
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first", split=False)]
    )
    tokenizer.add_special_tokens(["<unk>"])
    return _wrap(tokenizer)


def _sentencepiece() -> dict[str, Any]:
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    return {"vocab_size": 500, "special_tokens": ["<unk>", *byte_tokens], "show_progress": False}


def _wrap(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, clean_up_tokenization_spaces=False)


def chat_tokenizer(template: str = CHATML) -> PreTrainedTokenizerFast:
    tokenizer = copy.deepcopy(byte_level_bpe())
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    tokenizer.add_tokens(["<tool_call>", "</tool_call>", "<think>", "</think>"])
    tokenizer.chat_template = template
    return tokenizer
