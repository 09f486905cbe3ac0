"""The commands of a rank except training, on a GPU that computes no numbers."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from fake_gpu import GPU, WORLD_SIZE, install_fake_gpu
from learner_fixtures import random_samples
from rank_moves import learner_setup

from torl.learner import rank as rank_module
from torl.learner.batch import pack_batch
from torl.learner.deepspeed_engine import load_causal_lm, make_policy
from torl.learner.messages import RankSetup
from torl.learner.model.policy import Critic
from torl.learner.model.sequence_parallel import RowSlice, SequenceParallel
from torl.learner.objective import RowTensors
from torl.learner.process_group import join_process_group
from torl.learner.update import policy_logprobs, run_critic


def walk(model: Path, stage: int, lora: bool, algorithm: dict[str, Any]) -> dict[str, Any]:
    """Start a rank, compute log-probabilities and values, export, write and restore a checkpoint.

    Return the devices of the tensors at each point.
    """
    mode, emptied = install_fake_gpu()
    exported: dict[str, str] = {}
    rank_module.export_model = lambda weights, source, directory: exported.update(_devices(weights))
    rank_module.export_adapter = lambda weights, *_: exported.update(_devices(dict(weights)))
    setup = learner_setup(model, stage=stage, lora=lora, **algorithm)
    with mode:
        rank = rank_module.Rank(RankSetup(setup, 1, "", on_gpu=True), 0, WORLD_SIZE, lambda written: None)
        found: dict[str, Any] = {"device": str(rank.engine.device), "started": _where(rank)}
        row = RowTensors(pack_batch(random_samples(5), max_row_tokens=90, ranks=WORLD_SIZE).rows[0][0], GPU)
        computed = [
            policy_logprobs(policy, 1.0, row) for policy in (rank.engine, rank._reference) if policy is not None
        ]
        computed += [run_critic(engine, row) for tag, engine in rank._engines.items() if tag != "policy"]
        found["computed"] = [str(tensor.device) for tensor in computed]
        rank.export(Path())
        found["exported"] = sorted(set(exported.values()))
        found["exported names"] = sorted(exported)
        written: list[Any] = []
        rank._writer.write = lambda snapshot, directory: written.append(snapshot)  # type: ignore[method-assign]
        rank.save_checkpoint(Path())
        shards = [tensor for tensors, _ in written[0].shards.values() for tensor in tensors.values()]
        found["written"] = sorted({str(tensor.device) for tensor in shards})
        for state in rank._shards.values():
            state.set_steps(1)
            state.update_parameters()
        before = len(emptied)
        rank.offload("cache")
        found["emptied"] = len(emptied) - before
    return found


def share_row(model: Path) -> list[str]:
    """Compute a row that two ranks share, and return the devices of log-probabilities, entropies and values."""
    mode, _ = install_fake_gpu()
    setup = learner_setup(model, stage=2)
    with mode:
        tokens, positions, predictors = (torch.arange(8, device=GPU) for _ in range(3))
        join_process_group(RankSetup(setup, 1, "", on_gpu=True), 0, WORLD_SIZE)
        parallel = SequenceParallel(WORLD_SIZE)
        # The number of predictors in each slice is read from a tensor.
        part = RowSlice(tokens[:4], positions[:4], (8,), [4, 4], 0, predictors[:4])
        parallel.slice = lambda *_: part  # type: ignore[method-assign]
        models = [load_causal_lm(setup.model, setup.learner, GPU) for _ in range(2)]
        critic = Critic(models[0], parallel=parallel)(tokens, positions, predictors, (8,))
        policy = make_policy(models[1], setup.model, setup.learner, parallel)
        logprobs, entropies = policy(tokens, positions, predictors, tokens, 1.0, (8,))
        return [str(tensor.device) for tensor in (logprobs, entropies, critic)]


def broadcast_from_cpu() -> list[str]:
    """The errors of a broadcast of a fake and a real tensor on the CPU."""
    mode, _ = install_fake_gpu()
    errors = []
    for context in (mode, nullcontext()):
        try:
            with context:
                torch.distributed.broadcast(torch.zeros(2), 0)
        except RuntimeError as error:
            errors.append(str(error))
    return errors


def _devices(tensors: dict[str, torch.Tensor]) -> dict[str, str]:
    return {name: str(tensor.device) for name, tensor in tensors.items()}


def _where(rank: rank_module.Rank) -> dict[str, list[str]]:
    """The devices of trained and frozen parameters and of the optimizer's state."""
    found: dict[str, set[str]] = {"trained": set(), "frozen": set(), "state": set()}
    for tag, engine in rank._engines.items():
        for parameter in engine.module.parameters():
            kept = parameter.ds_tensor if hasattr(parameter, "ds_tensor") else parameter
            found["trained" if parameter.requires_grad else "frozen"].add(str(kept.device))
        state = rank._shards[tag].adamw.state.values()
        moments = [value for values in state for name, value in values.items() if name != "step"]
        found["state"] |= {str(tensor.device) for tensor in (*rank._shards[tag].masters, *moments)}
    return {name: sorted(devices) for name, devices in found.items()}
