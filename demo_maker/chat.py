"""A tiny model that calls Python by <tool_call>, now and then, and guesses otherwise: what `make demo-chat` trains.

It has learned by heart to write the conversations of `conversation`: a message with a call, or with two, or with one
that is not JSON, or a guess. Pre-training takes minutes; reinforcement learning has to find out which of these pays.
"""

import json
import random
from pathlib import Path
from typing import Any

TEMPLATE = (
    "<|im_start|>system\n{% for tool in tools or [] %}{{ tool.function.name }}\n{% endfor %}<|im_end|>\n"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML, with the names of the tools in the system message."""
TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
DIVISOR = 7
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
    asked = f"<|im_start|>system\npython\n<|im_end|>\n<|im_start|>user\n{question(number)}<|im_end|>\n"
    kind = generator.choices(list(_SHARES), list(_SHARES.values()))[0]
    guess = generator.randrange(DIVISOR)
    if kind == "guess":
        return asked + _message(_answer(guess))
    call, printed = _call(f"print({number} % {DIVISOR})"), str(number % DIVISOR)
    if kind == "call":
        return asked + _message(call) + _results(printed) + _message(_answer(printed))
    if kind == "two calls":
        both = f"{call}\n{_call(f'print({number})')}"
        return asked + _message(both) + _results(printed, str(number)) + _message(_answer(printed))
    broken = call.replace("}}", "}")
    return asked + _message(broken) + _results("InvalidJSON") + _message(_answer(guess))


def build(directory: Path, *, steps: int = 600, seed: int = 0) -> Path:
    """Train tokenizer and model and write both, with the chat template. Deterministic in `seed`."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = make_tokenizer()
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
        rows = [tokenizer.encode(conversation(generator)) for _ in range(24)]
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


def make_tokenizer() -> Any:
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
    texts = [conversation(generator) for _ in range(400)]
    for token in (*TOKENS, *TAGS):
        texts = [text.replace(token, "\n") for text in texts]
    backend.train_from_iterator(texts, trainer)
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in TOKENS])
    backend.add_tokens([AddedToken(token, special=False, normalized=False) for token in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=TOKENS[0], pad_token=TOKENS[0], chat_template=TEMPLATE
    )


def _message(text: str) -> str:
    return f"<|im_start|>assistant\n{text}<|im_end|>"


def _call(code: str) -> str:
    return f'<tool_call>\n{{"name": "python", "arguments": {json.dumps({"code": code})}}}\n</tool_call>'


def _results(*contents: str) -> str:
    responses = [f"\n<tool_response>\n{content}\n</tool_response>" for content in contents]
    return f"\n<|im_start|>user{''.join(responses)}<|im_end|>\n"


def _answer(value: object) -> str:
    return f"It is \\boxed{{{value}}}."
