"""Losses of TRL and verl on the same random numbers as torl's: flat for torl, padded for the peers."""

from collections import defaultdict
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from trl.trainer.grpo_trainer import GRPOTrainer
from verl.workers.config import ActorConfig

from ragged import RaggedBatch
from torl.components.algorithms.aggregation import AGGREGATIONS
from torl.components.algorithms.losses import CorrectionInputs

# torl's aggregations by their names at verl and TRL.
VERL_AGGREGATIONS = {
    "token": "token-mean",
    "sequence": "seq-mean-token-mean",
    "fixed_length": "seq-mean-token-sum-norm",
}
FIXED_LENGTH = 50
exact = {"rtol": 1e-6, "atol": 1e-9}


class Numbers:
    """Random logprobs and advantages of a batch in float64: flat for torl, padded for the peers."""

    def __init__(self, batch: RaggedBatch, seed: int, *, spread: float = 0.5) -> None:
        generator = np.random.default_rng(seed)
        tokens = int(batch.lengths.sum())
        old = -3 * generator.random(tokens)
        self.batch = batch
        self.flat = {
            "logprobs": old + generator.normal(0, spread, tokens),
            "old": old,
            "rollout": old + generator.normal(0, 0.3, tokens),
            "ref": old + generator.normal(0, spread, tokens),
            "advantages": generator.normal(0, 1, tokens),
            "values": generator.normal(0, 1, tokens),
            "returns": generator.normal(0, 1, tokens),
            "entropies": generator.random(tokens),
        }
        self.mask = torch.from_numpy(batch.mask)
        self.sequences = torch.from_numpy(np.repeat(np.arange(len(batch.masks)), batch.lengths))
        self.padded_mask = torch.tensor(batch.padded(batch.mask))

    def __getitem__(self, name: str) -> Tensor:
        return torch.tensor(self.flat[name])

    def padded(self, name: str) -> Tensor:
        return torch.tensor(self.batch.padded(self.flat[name]))

    def sampled(self) -> CorrectionInputs:
        return CorrectionInputs(self["old"], self["rollout"], self.mask, self.sequences)

    def weights(self, aggregation: str) -> Tensor:
        counts = [sum(mask) for mask in self.batch.masks]
        options = {"length": FIXED_LENGTH} if aggregation == "fixed_length" else {}
        weights = AGGREGATIONS[aggregation](counts, **options)
        return torch.from_numpy(np.repeat(weights, self.batch.lengths))


def loss_and_gradient(loss: Tensor, inputs: Tensor) -> tuple[float, Tensor]:
    (gradient,) = torch.autograd.grad(loss, inputs)
    return loss.item(), gradient


def actor(low: float, high: float, dual_clip: float) -> Any:
    config = ActorConfig(
        strategy="fsdp",
        ppo_micro_batch_size_per_gpu=1,
        rollout_n=1,
        clip_ratio_low=low,
        clip_ratio_high=high,
        clip_ratio_c=dual_clip,
    )
    config.global_batch_info.update(loss_scale_factor=FIXED_LENGTH)
    return config


class Accelerator:
    num_processes = 1

    def gather(self, tensor: Tensor) -> Tensor:
        return tensor

    def pad_across_processes(self, tensor: Tensor, **_: Any) -> Tensor:
        return tensor

    def reduce(self, tensor: Tensor, reduction: str) -> Tensor:
        return tensor


def trl_loss(numbers: Numbers, logprobs: Tensor, loss_type: str, low: float, high: float, **options: Any) -> Tensor:
    """`GRPOTrainer._compute_loss`, with a trainer that holds nothing but the settings it reads."""
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (logprobs, numbers.padded("entropies"), None),
        _entropy_bonus_enabled=False,
        _metrics={"eval": defaultdict(list)},
        accelerator=Accelerator(),
        args=SimpleNamespace(
            delta=None,
            use_bias_correction_kl=options.get("unbiased", False),
            steps_per_generation=1,
            sapo_temperature_pos=1.0,
            sapo_temperature_neg=1.05,
            vespo_k_pos=2.0,
            vespo_lambda_pos=3.0,
            vespo_k_neg=3.0,
            vespo_lambda_neg=2.0,
        ),
        aux_loss_enabled=False,
        beta=options.get("beta", 0.0),
        current_gradient_accumulation_steps=1,
        epsilon_high=high,
        epsilon_low=low,
        importance_sampling_level=options.get("level", "token"),
        loss_type=loss_type,
        max_completion_length=FIXED_LENGTH,
        model=SimpleNamespace(training=False),
        get_gamma_weights=GRPOTrainer.get_gamma_weights,
        get_off_policy_mask=GRPOTrainer.get_off_policy_mask,
        off_policy_mask_threshold=options.get("threshold"),
        top_entropy_quantile=options.get("share", 1.0),
        use_adaptive_entropy=False,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
    )
    trainer.get_high_entropy_mask = partial(GRPOTrainer.get_high_entropy_mask, trainer)
    mask = numbers.padded_mask
    inputs = {
        "prompt_ids": torch.zeros((len(mask), 1), dtype=torch.int64),
        "prompt_mask": torch.ones((len(mask), 1), dtype=torch.int64),
        "completion_ids": torch.zeros(mask.shape, dtype=torch.int64),
        "completion_mask": torch.ones_like(mask),
        "tool_mask": mask,
        "advantages": numbers.padded("advantages"),
        "old_per_token_logps": numbers.padded("old"),
        "sampling_per_token_logps": numbers.padded("rollout"),
        "ref_per_token_logps": numbers.padded("ref"),
        "num_items_in_batch": mask.sum(),
    }
    return GRPOTrainer._compute_loss(trainer, None, inputs)
