"""Tiny chat models that know conversations by heart: a template, a tokenizer, and learning until they copy.

What the demos of chats show begins with copying: a number of the question into a call, a result into the answer. A
model this small finds out how all at once, after some hundreds of steps or after thousands, as the roundings of the
machine have it. So it first learns the conversations in which something is copied, until it copies, and then all.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

TEMPLATE = (
    "<|im_start|>system\n{% for tool in tools or [] %}{{ tool.function.name }}\n{% endfor %}<|im_end|>\n"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML, with the names of the tools in the system message."""
TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
Conversation: TypeAlias = Callable[[random.Random], str]
"""Makes a whole response with its prompt."""
COPIED = (
    r"(\d{3})[\s\S]*?<tool_call>[\s\S]*?(\1)"
    r"[\s\S]*?<tool_response>[^<]*(\d)\.?\n</tool_response>[\s\S]*\\boxed\{(\3)\}"
)
"""A number of three digits into a call, and the last digit of the first result into the answer."""
_BATCH = 24
_RATE = 1e-3  # at 3e-3 copying may take thousands of steps to come
_STEPS_BETWEEN_PROBES, _PATIENCE = 50, 80
_PROBES, _ENOUGH = 64, 0.95


def build(directory: Path, made: Conversation, *, copied: str = COPIED, steps: int = 600, seed: int = 0) -> Path:
    """Train tokenizer and model on such conversations and write both, with the template. Takes a minute or so.

    Args:
        directory: Output directory.
        made: Conversations. The model's messages are learned, its prompts are not.
        copied: Function that finds in a conversation, by its even groups, the text to be copied from its odd ones.
        steps: Optimizer steps on all conversations, with a falling learning rate, after the steps on copies.
        seed: Random seed of the weights and the conversations.

    Raises:
        RuntimeError: The model does not copy after 4,000 steps.
    """
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = make_tokenizer(made)
    tokenizer.save_pretrained(directory)
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=384,
            hidden_size=96,
            intermediate_size=192,
            num_hidden_layers=2,
            num_attention_heads=3,
            num_key_value_heads=1,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.eos_token_id,
        )
    )
    generator = random.Random(seed)
    probes = _with_copies(made, copied, random.Random("conversations to probe with"))
    _learn_to_copy(model, tokenizer, _with_copies(made, copied, generator), [next(probes) for _ in range(_PROBES)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps)
    for _ in range(steps):
        _learn(model, optimizer, tokenizer, [made(generator) for _ in range(_BATCH)])
        schedule.step()
    model.save_pretrained(directory)
    return directory


def _with_copies(made: Conversation, copied: str, generator: random.Random) -> Iterator[re.Match[str]]:
    """Conversations in which something is copied, indefinitely."""
    while True:
        if match := re.search(copied, made(generator)):
            yield match


def _learn_to_copy(
    model: Any, tokenizer: Any, conversations: Iterator[re.Match[str]], probes: Sequence[re.Match[str]]
) -> None:
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, betas=(0.9, 0.98))
    for _ in range(_PATIENCE):
        for _ in range(_STEPS_BETWEEN_PROBES):
            _learn(model, optimizer, tokenizer, [next(conversations).string for _ in range(_BATCH)])
        if (share := _copied_share(model, tokenizer, probes)) >= _ENOUGH:
            return
    raise RuntimeError(f"the model copies {share:.0%} of what it should, and learns no more: take another seed")


def _learn(model: Any, optimizer: Any, tokenizer: Any, texts: Sequence[str]) -> None:
    """One step on all that the model says in them: a prompt's random numbers have much loss and nothing to learn."""
    import torch

    header = tokenizer.encode("<|im_start|>assistant\n")
    rows = [tokenizer.encode(text) for text in texts]
    ids = torch.zeros((len(rows), max(map(len, rows))), dtype=torch.long)
    labels = torch.full_like(ids, -100)
    for place, row in enumerate(rows):
        begin = next(at for at in range(len(row)) if row[at : at + len(header)] == header) + len(header)
        ids[place, : len(row)] = torch.tensor(row)
        labels[place, begin : len(row)] = ids[place, begin : len(row)]
    loss = model(input_ids=ids, labels=labels, use_cache=False).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def _copied_share(model: Any, tokenizer: Any, found: Sequence[re.Match[str]]) -> float:
    """The share of the copies in conversations whose every token is the model's most likely one."""
    import torch

    right = []
    for match in found:
        encoded = tokenizer(match.string, return_offsets_mapping=True)
        ids = encoded["input_ids"]
        with torch.no_grad():
            likeliest = model(input_ids=torch.tensor([ids])).logits[0].argmax(-1).tolist()
        for group in range(2, match.re.groups + 1, 2):
            start, stop = match.span(group)
            tokens = [at for at, (first, end) in enumerate(encoded["offset_mapping"]) if first < stop and end > start]
            right.append(all(likeliest[at - 1] == ids[at] for at in tokens))
    return sum(right) / len(right)


def make_tokenizer(made: Conversation) -> Any:
    """A token for each digit, the control tokens, and pieces of what the conversations are made of."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    words = pre_tokenizers.Split(Regex(r"\d| ?[A-Za-z]+|[^\sA-Za-z\d]+|\s"), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(False, use_regex=False)])
    backend.decoder = decoders.ByteLevel()
    generator = random.Random(1)
    trainer = trainers.BpeTrainer(
        vocab_size=360, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    texts = [made(generator) for _ in range(400)]
    for token in (*TOKENS, *TAGS):
        texts = [text.replace(token, "\n") for text in texts]
    backend.train_from_iterator(texts, trainer)
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in TOKENS])
    backend.add_tokens([AddedToken(token, special=False, normalized=False) for token in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=TOKENS[0], pad_token=TOKENS[0], chat_template=TEMPLATE
    )
