"""A tiny Qwen2 that has learned by heart to call Python, in a few seconds: enough for real rollouts with real calls."""

import random
from pathlib import Path

END = "<|endoftext|>"
VOCABULARY = 384  # rows of the embedding: more than there are tokens, as in real models
_MAX_TOKENS = 192


def prompt_text(first: int, second: int) -> str:
    """A problem as the documents state it."""
    return f"User: Compute {first} * {second}.\nAssistant:\n"


def documents(count: int, seed: int = 0) -> list[str]:
    """Solutions with one to four tool calls in a row; some calls fail, print nothing or come without code."""
    generator = random.Random(seed)
    return [_document(generator) for _ in range(count)]


def _document(generator: random.Random) -> str:
    first, second = generator.randint(2, 40), generator.randint(2, 40)
    parts = [prompt_text(first, second)]
    for _ in range(generator.randint(1, 4)):
        code, output = generator.choice(
            [
                (f"print({first} * {second})", str(first * second)),
                (f"x = {first}\nprint(x * {second})", str(first * second)),
                (f"print({first} * y)", "NameError: name 'y' is not defined"),
                (f"x = {first} * {second}", "[no output]"),
            ]
        )
        block = f"```python\n{code}\n```\n" if generator.random() < 0.95 else "Let me look.\n"
        parts.append(f"{block}```output\n{output}\n```\n")
    parts.append(f"The answer is \\boxed{{{first * second}}}.{END}")
    return "".join(parts)


def build_tiny_model(directory: Path, *, steps: int = 150, seed: int = 0) -> Path:
    """Train tokenizer and model on `documents` and write both (float32, safetensors). Deterministic in `seed`.

    Heads are 32 wide: vLLM's CPU attention has no kernel for 16.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    texts = documents(600, seed)
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator((text.removesuffix(END) for text in texts), trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END, pad_token=END)
    tokenizer.save_pretrained(directory)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the matrices are too small to share
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
    )
    model = Qwen2ForCausalLM(config)
    rows = [tokenizer.encode(text)[:_MAX_TOKENS] for text in texts]
    generator = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, steps)
    for _ in range(steps):
        batch = sorted(generator.sample(rows, 16), key=len)
        width = len(batch[-1])
        ids = torch.tensor([row + [0] * (width - len(row)) for row in batch])
        labels = torch.tensor([row + [-100] * (width - len(row)) for row in batch])
        loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    torch.set_num_threads(threads)
    model.save_pretrained(directory)
    return directory
