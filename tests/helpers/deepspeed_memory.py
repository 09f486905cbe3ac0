"""Count what DeepSpeed holds of models on the CPU: python deepspeed_memory.py RANK RANKS STORE DTYPE...

For each model and stage: bytes of all tensors after a start, in the middle of a step, and after one, and of the copy
that a checkpoint takes; a JSON object on a separate line. The bucket that stage 3 always has is left out: it is as
large for every model.
"""

import gc
import itertools
import json
import os
import sys
import time

import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from torl.learner.checkpoint.snapshot import take_snapshot
from torl.learner.deepspeed_engine import start_engine
from torl.learner.model.policy import Policy
from torl.learner.optimizer_shards import OptimizerShards
from torl.run.config import LearnerConfig
from torl.run.placement.states import BUCKET_ELEMENTS

# (hidden, intermediate, layers, heads, heads of keys, vocabulary, tied)
SHAPES = [
    (64, 128, 2, 4, 2, 512, True),
    (64, 256, 3, 4, 4, 300, False),
    (128, 256, 1, 2, 1, 1000, True),
    (96, 192, 2, 3, 1, 700, False),
    (32, 64, 8, 2, 2, 256, True),
]
STAGES = (0, 2, 3)


def model_config(shape: tuple[int, int, int, int, int, int, bool]) -> Qwen2Config:
    """A Qwen2 of that shape."""
    hidden, intermediate, layers, heads, key_heads, vocabulary, tied = shape
    return Qwen2Config(
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        vocab_size=vocabulary,
        tie_word_embeddings=tied,
    )


def storages() -> dict[int, int]:
    """The bytes of each storage of a tensor in this process."""
    gc.collect()
    found: dict[int, int] = {}
    for each in gc.get_objects():
        if type(each) in (torch.Tensor, torch.nn.Parameter) and each.device.type == "cpu":
            storage = each.untyped_storage()
            if storage.nbytes() < BUCKET_ELEMENTS:
                found[storage.data_ptr()] = storage.nbytes()
    return found


def count(shape: tuple[int, int, int, int, int, int, bool], stage: int, dtype: str) -> dict[str, int]:
    """The memory of a model in one rank."""
    before = storages()

    def held() -> int:
        # gloo's thread lets a bucket go some moments after its sum is there.
        counts = []
        for _ in range(3):
            counts.append(sum(size for place, size in storages().items() if place not in before))
            time.sleep(0.01)
        return min(counts)

    config = model_config(shape)
    settings = LearnerConfig.model_validate({"zero_stage": stage, "dtype": dtype, "gradient_checkpointing": False})
    model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    engine = start_engine(Policy(model, max_stored_logits=1 << 20), settings)
    del model
    counted = {"start": held()}
    ids = torch.arange(16)[None]
    for moment in ("first", "second"):
        loss = engine.module.causal_lm(input_ids=ids, labels=ids).loss
        engine.backward(loss)
        del loss
        counted[f"{moment} backward"] = held()
        engine.step()
        counted[f"{moment} step"] = held()
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    copied = take_snapshot({"policy": OptimizerShards(engine, rank, ranks)}, rank=rank, counters={})
    counted["copy"] = sum(each.nbytes for tensors, _ in copied.shards.values() for each in tensors.values())
    engine.destroy()
    return counted


def main() -> None:
    """All models and stages, in this process as one rank."""
    (rank, ranks), store, dtypes = map(int, sys.argv[1:3]), sys.argv[3], sys.argv[4:]
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "GLOO_SOCKET_IFNAME": "lo"}
    deepspeed.init_distributed(
        "gloo", auto_mpi_discovery=False, verbose=False, init_method=f"file://{store}", rank=rank, world_size=ranks
    )
    gc.collect()
    gc.freeze()  # objects of the libraries take long to look through, and do not belong to a model
    for number, shape in enumerate(SHAPES):
        for stage, dtype in itertools.product(STAGES, dtypes):
            counted = count(shape, stage, dtype)
            print(json.dumps({"shape": number, "stage": stage, "dtype": dtype, **counted}), flush=True)
    torch.distributed.barrier()
    os._exit(0)  # DeepSpeed keeps process groups alive, whose threads do not survive the end of the interpreter


if __name__ == "__main__":
    main()
