"""A tiny model that calls Python by <tool_call>, now and then, and guesses otherwise: what `make demo-chat` trains.

It has learned by heart to write the conversations of `conversation`: a message with a call, or with two, or with one
that is not JSON, or a guess. Pre-training takes minutes; reinforcement learning has to find out which of these pays.
"""

import json
import random
from collections.abc import Callable
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
DIVISOR = 7
Conversation: TypeAlias = Callable[[random.Random], str]
"""Makes a whole response with its prompt."""
_SHARES = {"guess": 0.55, "call": 0.25, "two calls": 0.1, "malformed": 0.1}


def question(number: int) -> str:
    """Numbers have three digits, so that a model of this size can learn to copy them."""
    return f"Find {number} % {DIVISOR}."


def problems(count: int, seed: int) -> list[dict[str, str]]:
    """Rows of a file of problems."""
    numbers = random.Random(seed).sample(range(100, 1000), count)
    return [{"id": str(n), "problem": question(n), "answer": str(n % DIVISOR)} for n in numbers]


def conversation(generator: random.Random) -> str:
    """A whole response with its prompt, as the model's template and the format "hermes" put them together."""
    number = generator.randrange(100, 1000)
    asked = prompt(question(number), "python")
    kind = generator.choices(list(_SHARES), list(_SHARES.values()))[0]
    guess = generator.randrange(DIVISOR)
    if kind == "guess":
        return asked + message(answer(guess))
    made, printed = call("python", code=f"print({number} % {DIVISOR})"), str(number % DIVISOR)
    if kind == "call":
        return asked + message(made) + results(printed) + message(answer(printed))
    if kind == "two calls":
        both = f"{made}\n{call('python', code=f'print({number})')}"
        return asked + message(both) + results(printed, str(number)) + message(answer(printed))
    broken = made.replace("}}", "}")
    return asked + message(broken) + results("InvalidJSON") + message(answer(guess))


def build(directory: Path, made: Conversation = conversation, *, steps: int = 600, seed: int = 0) -> Path:
    """Train tokenizer and model on such conversations and write both, with the template. Deterministic in `seed`."""
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
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps)
    for _ in range(steps):
        rows = [tokenizer.encode(made(generator)) for _ in range(24)]
        width = max(map(len, rows))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
        labels = torch.tensor([row + [-100] * (width - len(row)) for row in rows])
        loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.save_pretrained(directory)
    return directory


def make_tokenizer(made: Conversation = conversation) -> Any:
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


def prompt(question: str, *tools: str) -> str:
    """The messages before the model's first, as `TEMPLATE` writes them."""
    names = "".join(f"{tool}\n" for tool in tools)
    return f"<|im_start|>system\n{names}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n"


def message(text: str) -> str:
    """A message of the model."""
    return f"<|im_start|>assistant\n{text}<|im_end|>"


def call(tool: str, **arguments: str) -> str:
    """A call as the format "hermes" writes it."""
    return f"<tool_call>\n{json.dumps({'name': tool, 'arguments': arguments})}\n</tool_call>"


def results(*contents: str) -> str:
    """The message that answers its calls."""
    responses = [f"\n<tool_response>\n{content}\n</tool_response>" for content in contents]
    return f"\n<|im_start|>user{''.join(responses)}<|im_end|>\n"


def answer(value: object) -> str:
    """What it says in the end."""
    return f"It is \\boxed{{{value}}}."
