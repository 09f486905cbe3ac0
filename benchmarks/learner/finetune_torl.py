"""torl's side of `finetune.py`: a rank of the learner in this process, with the settings of `torl finetune`."""

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.learner.train_step_problem import ONE_RANK, SETTINGS, read_samples, serve
from torl.base.types import TrainingSample
from torl.learner.batch import pack_batch
from torl.learner.messages import LearnerSetup, RankSetup
from torl.learner.rank import Rank
from torl.run.config import FinetuneConfig
from torl.run.config.loading import load_config


def main() -> None:
    """Answer turns until there are no more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--max-row-tokens", type=int, required=True)
    parser.add_argument("--micro-batch", type=int, required=True, help="not used: rows are filled by tokens")
    arguments = parser.parse_args()
    os.environ |= ONE_RANK
    samples = [
        TrainingSample(
            token_ids=sample.token_ids,
            loss_mask=sample.sampled,
            rollout_logprobs=np.zeros(len(sample.token_ids), np.float32),
            advantages=sample.sampled.astype(np.float32),
        )
        for sample in read_samples(arguments.directory / "samples.json")
    ]
    settings = {f"learner.{name}": value for name, value in SETTINGS.items()}
    settings |= {"learner.zero_stage": 0, "learner.dtype": "float32", "learner.ranks": 1, "run.steps": 1000}
    settings |= {
        "model.path": str(arguments.directory / "model"),
        "run.directory": "unused",
        "finetune.train": "unused",
    }
    config = load_config(FinetuneConfig, None, settings)
    with tempfile.TemporaryDirectory() as meeting:
        setup = RankSetup(LearnerSetup.from_config(config), arguments.threads, f"file://{meeting}/store")
        rank = Rank(setup, 0, 1, lambda written: None)

        def step() -> dict[str, float]:
            batch = pack_batch(samples, max_row_tokens=arguments.max_row_tokens, ranks=1)
            metrics = rank.update_policy(batch.rows[0], batch.sampled_tokens).metrics
            return {name: metrics[name] for name in ("loss", "gradient_norm")}

        serve(step)
        rank.close()


if __name__ == "__main__":
    main()
