"""A model that plays a script inside of another library's trainer."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

PAD, END = "<|endoftext|>", "<|im_end|>"


def learned_by_heart(dialog: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> tuple[Any, Any]:
    """A tiny Qwen2 that knows one dialog with tools, and its tokenizer with Qwen2.5's chat template."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
    from trl.chat_template_utils import qwen2_5_chat_template

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = [PAD, "<|im_start|>", END, "<tool_call>", "</tool_call>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        [qwen2_5_chat_template, json.dumps(list(dialog))],
        trainers.BpeTrainer(vocab_size=600, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END, pad_token=PAD)
    tokenizer.chat_template = qwen2_5_chat_template
    ids = tokenizer.apply_chat_template(list(dialog), tools=list(tools), return_dict=False)
    batch = torch.tensor([ids])
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=2048, tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(120):
        loss = model(input_ids=batch, labels=batch, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05
    return model, tokenizer
