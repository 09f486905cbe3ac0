"""A tiny Qwen2 with random weights and a byte-level tokenizer whose tool-call markers span several tokens."""

from pathlib import Path

CORPUS = [
    "User: What is 17 * 23?\nAssistant:\nLet me compute this with Python.\n```python\nprint(17 * 23)\n```\n",
    "```output\n391\n```\nThe answer is \\boxed{391}.\n",
    "```python\nimport math\nx = math.gcd(12, 18)\nprint(x)\n```\n```output\n6\n```\nSo the result is \\boxed{6}.\n",
    "NameError: name 'a' is not defined\nZeroDivisionError: division by zero\n",
] * 20


def build_tiny_model(directory: Path, seed: int = 0, hidden_size: int = 64, layers: int = 2) -> Path:
    """Write config, weights (float32, safetensors) and tokenizer; the same seed gives the same weights."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=360,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", pad_token="<|endoftext|>")
    fast.save_pretrained(directory)
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=384,  # more rows than tokens, as in real models
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=hidden_size // 32,  # vLLM's CPU attention wants heads of 32, 64, 80, 96, ...
        num_key_value_heads=1,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        initializer_range=0.1,
        eos_token_id=fast.eos_token_id,
        bos_token_id=None,
        pad_token_id=fast.eos_token_id,
    )
    model = Qwen2ForCausalLM(config)
    model.save_pretrained(directory, safe_serialization=True)
    return directory
