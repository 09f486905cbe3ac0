"""Train a rank on a GPU, move its state to the CPU and back after each step, and print what was found as JSON.

    python state_moves.py MODEL ZERO_STAGE [--lora]

`moves`: for each step whether all bits came back, and torch's bytes on the GPU and seconds after each move. `planned`:
bytes of the ledger for the same states.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from learner_fixtures import random_samples
from torl.components.hub.shape import ModelShape
from torl.learner.batch import pack_batch
from torl.learner.messages import LearnerSetup, RankSetup
from torl.learner.publishing import full_weights
from torl.learner.rank import Rank
from torl.run.config import AlgorithmConfig, CriticConfig, LearnerConfig, LoraConfig, ModelConfig, TrainConfig
from torl.run.config.loading import load_config
from torl.run.placement.learner_bytes import LearnerBytes

STEPS, ROW_TOKENS = 3, 4096
LORA = LoraConfig(rank=8)
DEMO = Path(__file__).parents[2] / "python" / "torl" / "presets" / "demo.toml"


def digests(rank: Rank) -> list[int]:
    """Return a sum over the bits of each tensor of this rank's state and of the complete weights."""
    shards = rank._shards["policy"]
    state = [tensor for fragment in shards.fragments for tensor in shards.tensors(fragment).values()]
    tensors = [*state, *(tensor for _, tensor in full_weights(rank.engine))]
    return [int(tensor.detach().flatten().view(torch.int16).long().sum()) for tensor in tensors]


def move(rank: Rank) -> dict[str, Any]:
    """Offload everything and bring it back."""
    found: dict[str, Any] = {"resident": torch.cuda.memory_allocated()}
    before = digests(rank)
    for name, action in {
        "without optimizer": lambda: rank.offload("optimizer"),
        "without parameters": lambda: rank.offload("parameters"),
        "back": rank.onload,
    }.items():
        torch.cuda.synchronize()
        start = time.perf_counter()
        action()
        torch.cuda.synchronize()
        found[f"{name} seconds"] = time.perf_counter() - start
        found[name] = torch.cuda.memory_allocated()
        found[f"{name} reserved"] = torch.cuda.memory_reserved()
    return found | {"as before": digests(rank) == before}


def planned(model: Path, stage: int, adapters: bool) -> dict[str, int]:
    """Return the ledger's bytes of torch in each state."""
    words = {"model.path": str(model), "learner.max_row_tokens": str(ROW_TOKENS), "learner.zero_stage": str(stage)}
    words |= {"learner.dtype": "bfloat16"} | ({"model.lora.rank": str(LORA.rank)} if adapters else {})
    learner = LearnerBytes(load_config(TrainConfig, DEMO, words), ModelShape.read(model), 1)
    always = {name: size for name, size in learner.always().items() if name != "context"}
    states = {"without parameters": always}
    states["without optimizer"] = always | learner.parameters()
    states["resident"] = states["without optimizer"] | learner.optimizer()
    return {name: sum(parts.values()) for name, parts in states.items()}


def main() -> None:
    """Print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("stage", type=int)
    parser.add_argument("--lora", action="store_true")
    arguments = parser.parse_args()
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    learner = LearnerConfig(
        zero_stage=arguments.stage,
        dtype="bfloat16",
        learning_rate=1e-5,
        max_row_tokens=ROW_TOKENS,
        gradient_checkpointing=True,
        offload="while_sampling" if arguments.stage >= 2 else "none",
    )
    setup = LearnerSetup(
        ModelConfig(path=str(arguments.model), lora=LORA if arguments.lora else LoraConfig()),
        learner,
        AlgorithmConfig(),
        CriticConfig(),
        1.0,
        total_steps=STEPS,
        seed=0,
    )
    found: dict[str, Any] = {"planned": planned(arguments.model, arguments.stage, arguments.lora), "moves": []}
    with tempfile.TemporaryDirectory() as meeting:
        rank = Rank(RankSetup(setup, 4, f"file://{meeting}/store"), 0, 1, lambda written: None)
        found["device"] = str(rank.engine.device)
        for step in range(STEPS):
            samples = random_samples(24, seed=step, shortest=100, longest=900)
            batch = pack_batch(samples, max_row_tokens=ROW_TOKENS, ranks=1)
            update = rank.update_policy(batch.rows[0], batch.sampled_tokens, step)
            found["metrics"] = {name: float(value) for name, value in update.metrics.items()}
            if arguments.stage >= 2:
                found["moves"].append(move(rank))
        rank.close()
    print(json.dumps(found))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
