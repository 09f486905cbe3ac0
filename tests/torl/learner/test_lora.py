"""LoRA through the learner's processes: against peft and plain torch, and with adapters off as the reference policy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig as PeftConfig
from peft import PeftModel, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from learner_fixtures import (
    GRADIENT_CLIP,
    LEARNING_RATE,
    TEMPERATURE,
    plain_logprobs,
    plain_steps,
    random_samples,
    read_weights,
    relative_distance,
    start_learner,
    write_tiny_model,
)
from torl.base.errors import DataError
from torl.learner.checkpoint.directory import LEARNER, checkpoint_path
from torl.learner.checkpoint.shards import adapter_products, read_policy_weights
from torl.learner.model.lora import add_adapters
from torl.run.config import AlgorithmConfig, LoraConfig

STEPS = [random_samples(9, seed=1), random_samples(6, seed=3)]
LORA = LoraConfig(rank=4, alpha=12, target_modules=("q_proj", "down_proj"))
RATE = 30 * LEARNING_RATE  # adapters begin at nothing: with less, rounding would hide a mistake

pytestmark = pytest.mark.usefixtures("forked_ranks")


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("lora-model"))


@pytest.fixture(scope="module")
def bfloat16_directory(model_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as most are published. A learner in float32 keeps its frozen weights in bfloat16."""
    directory = tmp_path_factory.mktemp("lora-bfloat16")
    AutoModelForCausalLM.from_pretrained(model_directory, dtype=torch.bfloat16).save_pretrained(directory)
    return directory


def with_adapters(model: Any) -> Any:
    """peft's own, beginning with the same random numbers."""
    torch.manual_seed(0)
    settings = PeftConfig(
        r=LORA.rank, lora_alpha=LORA.alpha, target_modules=list(LORA.target_modules), lora_dropout=0.0
    )
    return get_peft_model(model, settings)


@pytest.mark.parametrize(
    ("directory", "zero_stage", "ranks"),
    [("model_directory", 0, 1), ("model_directory", 3, 2), ("bfloat16_directory", 1, 2), ("bfloat16_directory", 3, 2)],
)
async def test_adapters_learn_as_in_plain_torch_and_leave_merged(
    directory: str, zero_stage: int, ranks: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    model_directory = request.getfixturevalue(directory)
    expected, losses, norms = plain_steps(
        model_directory,
        STEPS,
        temperature=TEMPERATURE,
        learning_rate=RATE,
        gradient_clip=GRADIENT_CLIP,
        prepare=with_adapters,
        finish=lambda model: model.merge_and_unload(),
    )
    settings = {"zero_stage": zero_stage, "ranks": ranks, "learning_rate": RATE}
    with_reference = AlgorithmConfig.model_validate({"kl": {"coefficient": 1e-9}})
    learner = await start_learner(model_directory, tmp_path / "logs", lora=LORA, algorithm=with_reference, **settings)
    async with learner:
        metrics = []
        for step, samples in enumerate(STEPS):
            prepared = await learner.annotate(samples)
            metrics.append(await learner.update(prepared, step=step))
            if step == 0:
                await learner.save_checkpoint(checkpoint_path(tmp_path, 1), {})
                await learner.export(tmp_path / "first")
        await learner.export(tmp_path / "straight")
        references = [sample.ref_logprobs for sample in await learner.annotate(STEPS[0])]
        await learner.load_checkpoint(checkpoint_path(tmp_path, 1))
        await learner.update(await learner.annotate(STEPS[1]), step=1)
        await learner.export(tmp_path / "resumed")

    assert [row["loss"] for row in metrics] == pytest.approx(losses, rel=1e-6, abs=1e-6)
    assert [row["gradient_norm"] for row in metrics] == pytest.approx(norms, rel=1e-5)
    base = AutoModelForCausalLM.from_pretrained(model_directory, dtype=torch.float32, attn_implementation="eager")
    straight = read_weights(tmp_path / "straight")
    moved = {name for name, weight in base.named_parameters() if not torch.equal(weight, straight[name])}
    assert moved == {name for name in straight if any(f"{target}.weight" in name for target in LORA.target_modules)}
    assert relative_distance(straight, expected) < 1e-6
    resumed = read_weights(tmp_path / "resumed")
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)

    # The reference policy is the model without its adapters, after they have moved.
    for sample, found in zip(STEPS[0], references, strict=True):
        plain = plain_logprobs(base.eval(), sample, TEMPERATURE).detach().numpy() * sample.loss_mask[1:]
        assert found is not None
        np.testing.assert_allclose(found[1:], plain, atol=2e-5)

    # A checkpoint, as the audit reads it.
    saved = read_policy_weights(checkpoint_path(tmp_path, 1) / LEARNER)
    products = dict(adapter_products(saved, LORA))
    merged = {name: weight.detach() + products.get(name, 0) for name, weight in base.named_parameters()}
    assert relative_distance(merged, read_weights(tmp_path / "first")) < 1e-6

    # The adapter alone, as peft reads it.
    loaded = PeftModel.from_pretrained(base, tmp_path / "straight" / "adapter").merge_and_unload()
    assert relative_distance(dict(loaded.named_parameters()), straight) < 1e-6


async def test_a_layer_that_the_model_does_not_have_is_named(model_directory: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"model\.lora\.target_modules = \['gate'\]"):
        await start_learner(model_directory, tmp_path / "logs", lora=LoraConfig(rank=4, target_modules=("gate",)))


def test_transposed_weights_are_refused() -> None:
    """gpt2's layers. An adapter that is merged without transposing it would go unnoticed in a square weight."""
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("gpt2", n_embd=8, n_layer=1, n_head=2, vocab_size=9))
    with pytest.raises(DataError, match=r"transformer\.h\.0\.attn\.c_attn stores its weight transposed"):
        add_adapters(model, LoraConfig(rank=2), seed=0)
