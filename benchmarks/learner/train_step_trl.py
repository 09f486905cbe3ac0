"""TRL's side of `train_step.py`: `GRPOTrainer.train` on the given batch, its generation left out."""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.learner.train_step_problem import CLIP, SETTINGS, peak_bytes, read_samples, report, wait_for_turn


def pad(parts: list[torch.Tensor], side: str = "right") -> torch.Tensor:
    """Rows of one length, zeros on that side."""
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_side=side)


def batch_of(path: Path) -> dict[str, torch.Tensor]:
    """Results of `_generate_and_score_completions`: prompts padded on the left, completions on the right."""
    samples = read_samples(path)
    prompts = [torch.from_numpy(sample.token_ids[: sample.prompt_tokens]).long() for sample in samples]
    completions = [torch.from_numpy(sample.token_ids[sample.prompt_tokens :]).long() for sample in samples]
    sampled = [torch.from_numpy(sample.sampled[sample.prompt_tokens :]).long() for sample in samples]
    return {
        "prompt_ids": pad(prompts, "left"),
        "prompt_mask": pad([torch.ones_like(part) for part in prompts], "left"),
        "completion_ids": pad(completions),
        "completion_mask": pad([torch.ones_like(part) for part in completions]),
        "tool_mask": pad(sampled),
        "advantages": torch.tensor([sample.advantage for sample in samples]),
        "old_per_token_logps": pad([torch.from_numpy(s.old_logprobs[s.prompt_tokens :]) for s in samples]),
        "num_items_in_batch": sum(part.sum() for part in sampled),
    }


class GivenBatch(GRPOTrainer):
    """Its loss, its backward, its optimizer step; the completions are those of the batch."""

    batch: dict[str, torch.Tensor]

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, torch.Tensor]:
        return dict(self.batch)


class Turns(TrainerCallback):
    """An optimizer step for each turn."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        control.should_training_stop = not wait_for_turn()
        self.start = time.perf_counter(), time.process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.times = {
            "seconds": time.perf_counter() - self.start[0],
            "processor_seconds": time.process_time() - self.start[1],
        }
        control.should_log = True

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **others: Any) -> None:
        if "grad_norm" in logs:
            norm = float(logs["grad_norm"])
            report(**self.times, peak_bytes=peak_bytes(), loss=float(logs["loss"]), gradient_norm=norm)


def main() -> None:
    """Answer turns until there are no more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--max-row-tokens", type=int, required=True, help="not used: rows have a number of samples")
    parser.add_argument("--micro-batch", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    batch = batch_of(arguments.directory / "samples.json")
    count = len(batch["prompt_ids"])
    model = AutoModelForCausalLM.from_pretrained(
        arguments.directory / "model", dtype=torch.float32, attn_implementation="sdpa"
    )
    with tempfile.TemporaryDirectory() as output:
        config = GRPOConfig(
            output_dir=output,
            per_device_train_batch_size=arguments.micro_batch,
            gradient_accumulation_steps=count // arguments.micro_batch,
            num_generations=count,
            learning_rate=SETTINGS["learning_rate"],
            lr_scheduler_type="constant",
            adam_beta1=SETTINGS["betas"][0],
            adam_beta2=SETTINGS["betas"][1],
            weight_decay=SETTINGS["weight_decay"],
            max_grad_norm=SETTINGS["gradient_clip"],
            loss_type="dapo",
            epsilon=CLIP,
            beta=0.0,
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": False},
            use_cpu=True,
            bf16=False,
            max_steps=1000,
            logging_steps=1,
            logging_nan_inf_filter=False,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            disable_dropout=True,
        )
        trainer = GivenBatch(
            model=model,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=config,
            train_dataset=Dataset.from_dict({"prompt": ["x"] * count}),
            processing_class=AutoTokenizer.from_pretrained(arguments.directory / "model"),
            callbacks=[Turns()],
        )
        trainer.batch = batch
        report(ready=True)
        trainer.train()


if __name__ == "__main__":
    main()
