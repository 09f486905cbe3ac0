"""torl's side of `train_step.py` and `pretrained/speed.py`: a rank in this process, and its command `update_policy`."""

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.learner.train_step_problem import CLIP, ONE_RANK, SETTINGS, add_model_options, read_samples, serve
from torl.base.types import TrainingSample
from torl.learner.batch import pack_batch
from torl.learner.messages import LearnerSetup, RankSetup
from torl.learner.rank import Rank
from torl.run.config import AlgorithmConfig, CriticConfig, LearnerConfig, LoraConfig, ModelConfig


def main() -> None:
    """Answer turns until there are no more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--max-row-tokens", type=int, required=True)
    parser.add_argument("--micro-batch", type=int, required=True, help="not used: rows are filled by tokens")
    add_model_options(parser)
    arguments = parser.parse_args()
    os.environ |= ONE_RANK
    samples = [
        TrainingSample(
            token_ids=sample.token_ids,
            loss_mask=sample.sampled,
            rollout_logprobs=sample.old_logprobs,
            advantages=np.where(sample.sampled, sample.advantage, 0).astype(np.float32),
            old_logprobs=sample.old_logprobs,
        )
        for sample in read_samples(arguments.directory / "samples.json")
    ]
    learner = LearnerConfig(
        ranks=1,
        zero_stage=0,
        dtype=arguments.dtype,
        max_row_tokens=arguments.max_row_tokens,
        gradient_checkpointing=arguments.gradient_checkpointing,
        **SETTINGS,
    )
    algorithm = AlgorithmConfig.model_validate({"policy_loss": {"clip_low": CLIP, "clip_high": CLIP}, "epochs": 2})
    model = ModelConfig(path=str(arguments.directory / "model"), lora=LoraConfig(rank=arguments.lora_rank))
    setup = LearnerSetup(model, learner, algorithm, CriticConfig(), temperature=1.0, total_steps=1000, seed=0)
    with tempfile.TemporaryDirectory() as meeting:
        rank = Rank(RankSetup(setup, arguments.threads, f"file://{meeting}/store"), 0, 1, lambda written: None)

        def step() -> dict[str, float]:
            batch = pack_batch(
                samples, max_row_tokens=arguments.max_row_tokens, ranks=1, share_prompts=rank.shares_prompts
            )
            metrics = rank.update_policy(batch.rows[0], batch.sampled_tokens).metrics
            return {name: metrics[name] for name in ("loss", "gradient_norm")}

        serve(step)
        rank.close()


if __name__ == "__main__":
    main()
