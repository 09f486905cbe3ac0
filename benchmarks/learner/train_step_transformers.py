"""The plain side of `pretrained/speed.py`: a training step with transformers and torch alone, as one writes it by hand.

Samples in their order, padded on the right to the longest of a micro-batch, all logits, the clipped loss as a mean over
sampled tokens, torch's AdamW. With a rank, peft adapts all linear layers except the head, as torl does.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM

from benchmarks.learner.train_step_problem import CLIP, SETTINGS, Sample, add_model_options, read_samples, serve
from torl.run.config import LoraConfig


def main() -> None:
    """Answer turns until there are no more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--max-row-tokens", type=int, required=True, help="not used: rows have a number of samples")
    parser.add_argument("--micro-batch", type=int, required=True)
    add_model_options(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    samples = read_samples(arguments.directory / "samples.json")
    sampled_tokens = sum(int(sample.sampled.sum()) for sample in samples)
    micro_batches = [
        collate(samples[start : start + arguments.micro_batch])
        for start in range(0, len(samples), arguments.micro_batch)
    ]
    model = load(arguments)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(
        parameters,
        lr=SETTINGS["learning_rate"],
        betas=SETTINGS["betas"],
        weight_decay=SETTINGS["weight_decay"],
    )

    def step() -> dict[str, float]:
        total = 0.0
        for batch in micro_batches:
            loss = clipped_loss(model, batch) / sampled_tokens
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(parameters, SETTINGS["gradient_clip"])
        optimizer.step()
        optimizer.zero_grad()
        return {"loss": total, "gradient_norm": float(norm)}

    serve(step)


def collate(samples: list[Sample]) -> dict[str, torch.Tensor]:
    """Return the padded tensors of a micro-batch, shape (B, T); advantages have shape (B, 1)."""

    def pad(name: str) -> torch.Tensor:
        return pad_sequence([torch.from_numpy(getattr(sample, name)) for sample in samples], batch_first=True)

    lengths = torch.tensor([[len(sample.token_ids)] for sample in samples])
    ids = pad("token_ids").long()
    return {
        "input_ids": ids,
        "attention_mask": (torch.arange(ids.shape[1]) < lengths).long(),
        "sampled": pad("sampled"),
        "old_logprobs": pad("old_logprobs"),
        "advantages": torch.tensor([[sample.advantage] for sample in samples]),
    }


def clipped_loss(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the sum of PPO's clipped loss over the sampled tokens of a micro-batch."""
    ids, mask = batch["input_ids"], batch["attention_mask"]
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, :-1]
    logprobs = -cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(len(ids), -1)
    ratio = (logprobs - batch["old_logprobs"][:, 1:]).exp()
    advantages = batch["advantages"]
    losses = -torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
    return losses[batch["sampled"][:, 1:]].sum()


def load(arguments: argparse.Namespace) -> Any:
    """Load the model, with adapters if there is a rank."""
    model = AutoModelForCausalLM.from_pretrained(
        arguments.directory / "model", dtype=getattr(torch, arguments.dtype), attn_implementation="sdpa"
    )
    if arguments.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if arguments.lora_rank:
        import peft

        alpha = LoraConfig().alpha
        settings = peft.LoraConfig(r=arguments.lora_rank, lora_alpha=int(alpha), target_modules="all-linear")
        model = peft.get_peft_model(model, settings)
    return model.train()


if __name__ == "__main__":
    main()
