"""A tiny random Qwen2 without tokenizer, samples for it, and the same optimizer steps in plain torch."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from torl.base.types import TrainingSample
from torl.learner.learner import Learner
from torl.learner.messages import LearnerSetup
from torl.run.config import AlgorithmConfig, CriticConfig, LearnerConfig, LoraConfig, ModelConfig

VOCABULARY = 97
TEMPERATURE = 0.7
LEARNING_RATE = 1e-3
GRADIENT_CLIP = 0.5  # the norms here are larger


async def start_learner(
    model_directory: Path,
    logs: Path,
    *,
    algorithm: AlgorithmConfig | None = None,
    critic: CriticConfig | None = None,
    lora: LoraConfig | None = None,
    **settings: Any,
) -> Learner:
    """A learner with these tests' hyper-parameters, of ranks with one thread each."""
    options: dict[str, Any] = {
        "dtype": "float32",
        "learning_rate": LEARNING_RATE,
        "gradient_clip": GRADIENT_CLIP,
        "cpu_threads": 1,
        "timeout_seconds": 120,
        **settings,
    }
    setup = LearnerSetup(
        model=ModelConfig(path=str(model_directory), lora=lora or LoraConfig()),
        learner=LearnerConfig(**options),
        algorithm=algorithm or AlgorithmConfig(),
        critic=critic or CriticConfig(),
        temperature=TEMPERATURE,
        total_steps=4,
        seed=0,
    )
    return await Learner.start(setup, log_directory=logs)


def write_tiny_model(
    directory: Path, *, tied: bool = True, seed: int = 0, layers: int = 2, intermediate: int = 64, positions: int = 256
) -> Path:
    """Two layers by default, float32, weights large enough that logprobs differ between tokens."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        tie_word_embeddings=tied,
        initializer_range=0.1,
        attention_dropout=0.1,  # the learner must ignore it
    )
    Qwen2ForCausalLM(config).save_pretrained(directory)
    return directory


def random_samples(count: int, *, seed: int = 0, shortest: int = 4, longest: int = 40) -> list[TrainingSample]:
    """Samples with a prompt, sampled and observed stretches, and advantages of either sign. Pairs have one prompt."""
    generator = np.random.default_rng(seed)
    samples: list[TrainingSample] = []
    for index in range(count):
        length = int(generator.integers(shortest, longest + 1))
        prompt = int(generator.integers(1, max(2, length // 3)))
        mask = np.repeat(generator.random(length // 3 + 1) < 0.7, 3)[:length]
        mask[:prompt] = False
        mask[-1] = True
        token_ids = generator.integers(0, VOCABULARY, length).astype(np.int32)
        if index % 2 and (prompt := int(samples[-1].loss_mask.argmax())) < length:
            token_ids[:prompt] = samples[-1].token_ids[:prompt]
            mask[:prompt], mask[prompt] = False, True
        samples.append(
            TrainingSample(
                token_ids=token_ids,
                loss_mask=mask,
                rollout_logprobs=np.where(mask, -4 * generator.random(length), 0).astype(np.float32),
                advantages=np.where(mask, generator.normal(), 0).astype(np.float32),
            )
        )
    return samples


def plain_logprobs(model: torch.nn.Module, sample: TrainingSample, temperature: float) -> torch.Tensor:
    """Log-probability of each token but the first, from a forward of this sample alone; shape (T - 1,)."""
    ids = torch.from_numpy(sample.token_ids).long()[None]
    logits = model(input_ids=ids).logits[0, :-1].float() / temperature
    return torch.log_softmax(logits, dim=-1).gather(-1, ids[0, 1:, None]).squeeze(-1)


def plain_steps(
    directory: Path,
    steps: Sequence[Sequence[TrainingSample]],
    *,
    temperature: float,
    learning_rate: float,
    gradient_clip: float,
    clip: float = 0.2,
    prepare: Callable[[Any], Any] = lambda model: model,
    finish: Callable[[Any], Any] = lambda model: model,
) -> tuple[dict[str, torch.Tensor], list[float], list[float]]:
    """The learner's optimizer steps done the plain way: one process, one sample at a time, torch's own AdamW.

    `prepare` and `finish` change the model before the first step and after the last. Returns the final weights, and
    loss and gradient norm of each step.
    """
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    model = prepare(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.999), weight_decay=0.01)
    losses, norms = [], []
    for samples in steps:
        total = sum(int(sample.loss_mask.sum()) for sample in samples)
        imitated = [each.imitation_weights for each in samples if each.imitation_weights is not None]
        imitated_total = sum(np.count_nonzero(weights) for weights in imitated)
        optimizer.zero_grad()
        loss_sum = 0.0
        for sample in samples:
            logprobs = plain_logprobs(model, sample, temperature)
            old = logprobs.detach() if sample.old_logprobs is None else torch.from_numpy(sample.old_logprobs[1:])
            ratio = (logprobs - old).exp()
            advantages = torch.from_numpy(sample.advantages[1:])
            surrogate = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
            loss = -(surrogate * torch.from_numpy(sample.loss_mask[1:])).sum() / max(1, total)
            if sample.imitation_weights is not None:
                loss = loss - (torch.from_numpy(sample.imitation_weights[1:]) * logprobs).sum() / imitated_total
            loss.backward()
            loss_sum += float(loss.detach())
        losses.append(loss_sum)
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), gradient_clip)))
        optimizer.step()
    weights = {name: parameter.detach().clone() for name, parameter in finish(model).named_parameters()}
    return weights, losses, norms


def read_weights(directory: Path) -> dict[str, torch.Tensor]:
    """All tensors of an exported model."""
    weights: dict[str, torch.Tensor] = {}
    for path in sorted(directory.glob("*.safetensors")):
        weights |= load_file(path)
    return weights


def distance_after_adamw(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], max_update: float) -> float:
    """Relative distance of the weights, without the one in 10,000 that differs most.

    AdamW divides a gradient by its magnitude plus 1e-8. For a weight whose gradient is near 1e-8, rounding decides the
    update: plain torch itself differs there from one processor to another. Such weights stay within `max_update`, the
    sum of the learning rates in both directions.
    """
    assert found.keys() == expected.keys()
    differences = torch.cat([(found[name].double() - expected[name].double()).abs().flatten() for name in expected])
    size = sum(float(tensor.double().square().sum()) for tensor in expected.values()) ** 0.5
    ill_conditioned = differences.topk(len(differences) // 10_000).values
    assert float(ill_conditioned.max()) <= max_update
    others = float(differences.square().sum() - ill_conditioned.square().sum())
    return max(others, 0.0) ** 0.5 / size


def relative_distance(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """|found - expected| / |expected| over all weights together, in float64."""
    assert found.keys() == expected.keys()
    difference = sum(float((found[name].double() - expected[name].double()).square().sum()) for name in expected)
    size = sum(float(tensor.double().square().sum()) for tensor in expected.values())
    return float((difference / size) ** 0.5)
