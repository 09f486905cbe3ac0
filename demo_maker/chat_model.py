"""Tiny chat models that know conversations by heart: a template, a tokenizer, and learning until they copy.

What the demos of chats show begins with copying: a number of the question into a call, a result into the answer. A
model this small finds out how all at once, after some hundreds of steps or after two thousand, as the roundings of the
machine have it. So it learns in rounds, until it does.
"""

import random
import re
from collections.abc import Callable, Iterator
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
_ROUNDS = 8
_PROBES, _ENOUGH = 64, 0.9


def build(directory: Path, made: Conversation, *, copied: str = COPIED, steps: int = 600, seed: int = 0) -> Path:
    """Train tokenizer and model on such conversations and write both, with the template. Takes a minute or some.

    Args:
        directory: where they go.
        made: the conversations; what the model says in them is learned, its prompts are not.
        copied: finds in a conversation, by its even groups, what is to be copied from its odd ones. Where nothing
            matches there is nothing to copy.
        steps: of a round; the learning rate falls over each. Rounds follow until 90 % of all copies are right.
        seed: of the weights and the conversations.

    Raises:
        RuntimeError: after eight rounds it still does not copy.
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
    for _ in range(_ROUNDS):
        _learn(model, (made(generator) for _ in range(steps * _BATCH)), tokenizer, steps)
        if (share := _copied_share(model, tokenizer, made, re.compile(copied))) >= _ENOUGH:
            model.save_pretrained(directory)
            return directory
    raise RuntimeError(
        f"the model copies {share:.0%} of what it should after {_ROUNDS * steps} steps: take another seed"
    )


def _learn(model: Any, conversations: Iterator[str], tokenizer: Any, steps: int) -> None:
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps)
    answers = tokenizer.encode("<|im_start|>assistant\n")
    for _ in range(steps):
        rows = [tokenizer.encode(next(conversations)) for _ in range(_BATCH)]
        width = max(map(len, rows))
        ids = torch.zeros((_BATCH, width), dtype=torch.long)
        labels = torch.full((_BATCH, width), -100)
        for place, row in enumerate(rows):
            first = next(at for at in range(len(row)) if row[at : at + len(answers)] == answers) + len(answers)
            ids[place, : len(row)] = torch.tensor(row)
            labels[place, first : len(row)] = ids[place, first : len(row)]
        loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def _copied_share(model: Any, tokenizer: Any, made: Conversation, copied: re.Pattern[str]) -> float:
    """Of the copies in some conversations, the share whose every token the model finds likeliest."""
    import torch

    generator = random.Random("conversations to probe with")
    found = filter(None, (copied.search(made(generator)) for _ in range(8 * _PROBES)))
    right = []
    for match in list(found)[:_PROBES]:
        encoded = tokenizer(match.string, return_offsets_mapping=True)
        ids = encoded["input_ids"]
        with torch.no_grad():
            likeliest = model(input_ids=torch.tensor([ids])).logits[0].argmax(-1).tolist()
        for group in range(2, copied.groups + 1, 2):
            start, stop = match.span(group)
            tokens = [at for at, (first, end) in enumerate(encoded["offset_mapping"]) if first < stop and end > start]
            right.append(all(likeliest[at - 1] == ids[at] for at in tokens))
    return sum(right) / len(right) if right else 1.0


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
