"""TRL's side of `finetune.py`: `SFTTrainer.train` on the given tokens, one optimizer step for each turn."""

import argparse
import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from benchmarks.learner.train_step_problem import SETTINGS, read_samples, report
from benchmarks.learner.train_step_trl import Turns


def main() -> None:
    """Answer turns until there are no more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--max-row-tokens", type=int, required=True, help="not used: rows have a number of examples")
    parser.add_argument("--micro-batch", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    samples = read_samples(arguments.directory / "samples.json")
    rows = {
        "input_ids": [sample.token_ids.tolist() for sample in samples],
        "labels": [
            [
                token if trained else -100
                for token, trained in zip(sample.token_ids.tolist(), sample.sampled, strict=True)
            ]
            for sample in samples
        ],
    }
    model = AutoModelForCausalLM.from_pretrained(
        arguments.directory / "model", dtype=torch.float32, attn_implementation="sdpa"
    )
    with tempfile.TemporaryDirectory() as output:
        config = SFTConfig(
            output_dir=output,
            per_device_train_batch_size=arguments.micro_batch,
            gradient_accumulation_steps=len(samples) // arguments.micro_batch,
            learning_rate=SETTINGS["learning_rate"],
            lr_scheduler_type="constant",
            adam_beta1=SETTINGS["betas"][0],
            adam_beta2=SETTINGS["betas"][1],
            weight_decay=SETTINGS["weight_decay"],
            max_grad_norm=SETTINGS["gradient_clip"],
            max_length=None,
            use_cpu=True,
            bf16=False,
            max_steps=1000,
            logging_steps=1,
            logging_nan_inf_filter=False,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = SFTTrainer(
            model=model,
            args=config,
            train_dataset=Dataset.from_dict(rows),
            processing_class=AutoTokenizer.from_pretrained(arguments.directory / "model"),
            callbacks=[Turns()],
        )
        report(ready=True)
        trainer.train()


if __name__ == "__main__":
    main()
