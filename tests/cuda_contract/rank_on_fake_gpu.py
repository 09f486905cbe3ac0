"""The commands of a rank on a GPU that computes no numbers."""

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
from torl.learner.model.sequence_parallel import SequenceParallel
from torl.learner.objective import RowTensors
from torl.learner.process_group import join_process_group
from torl.learner.rows import RowPieces
from torl.learner.update import policy_logprobs, run_critic


def walk(model: Path, stage: int, lora: bool, algorithm: dict[str, Any], offload: str = "") -> dict[str, Any]:
    """Start a rank, take steps, leave the GPU and return, export, write and restore a checkpoint.

    Return the devices of the tensors at each point.
    """
    mode, emptied = install_fake_gpu()
    exported: dict[str, str] = {}
    rank_module.export_model = lambda weights, *_: exported.update(_devices(dict(weights)))
    rank_module.export_adapter = lambda weights, *_: exported.update(_devices(dict(weights)))
    setup = learner_setup(model, stage=stage, lora=lora, offload=offload, **algorithm)
    reports: list[Any] = []
    with mode:
        rank = rank_module.Rank(RankSetup(setup, 1, "", on_gpu=True), 0, WORLD_SIZE, reports.append)
        found: dict[str, Any] = {"device": str(rank.engine.device), "started": _where(rank)}
        found["rounds partial sums"] = torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
        batch = pack_batch(random_samples(5), max_row_tokens=90, ranks=WORLD_SIZE)
        buffers = [buffer for engine in rank._engines.values() for buffer in engine.module.buffers()]
        found["frequencies"] = sorted({f"{buffer.dtype} on {buffer.device}" for buffer in buffers})
        row = RowTensors(batch.rows[0][0], GPU)
        computed = [
            policy_logprobs(policy, 1.0, row) for policy in (rank.engine, rank._reference) if policy is not None
        ]
        computed += [run_critic(engine, row) for tag, engine in rank._engines.items() if tag != "policy"]
        found["computed"] = [str(tensor.device) for tensor in computed]
        for step in range(2):
            rank.update_policy(batch.rows[0], batch.sampled_tokens)
            if "critic" in rank._engines:
                rank.update_critic(batch.rows[0], batch.sampled_tokens)
            found[f"step {step}"] = _where(rank)
            if setup.learner.offloads_while_sampling:
                rank.offload("optimizer")
                found[f"parameters {step}"] = _where(rank)
                rank.offload("parameters")
                found[f"offloaded {step}"] = _where(rank)
                rank.onload()
                found[f"back {step}"] = _where(rank)
        found["rows reported"] = len(reports) / (2 * len(batch.rows[0]))
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
    """Compute a row that two ranks share and its gradients, and return the devices of outputs and gradients."""
    mode, _ = install_fake_gpu()
    setup = learner_setup(model, stage=2)
    with mode:
        tokens, positions, predictors = (torch.arange(7, device=GPU) for _ in range(3))  # with padding
        join_process_group(RankSetup(setup, 1, "", on_gpu=True), 0, WORLD_SIZE)
        parallel = SequenceParallel(WORLD_SIZE)
        models = [load_causal_lm(setup.model, setup.learner, GPU) for _ in range(2)]
        critic = Critic(models[0], parallel=parallel)
        policy = make_policy(models[1], setup.model, setup.learner, parallel)
        pieces = RowPieces((7,), (None,))
        values = critic(tokens, positions, predictors, pieces)
        logprobs, entropies = policy(tokens, positions, predictors, tokens, 1.0, pieces)
        (values.sum() + logprobs.sum()).backward()
        gradients = [each.grad for model in (critic, policy) for each in model.parameters() if each.grad is not None]
        outputs = [logprobs, entropies, values]
        return [str(tensor.device) for tensor in (*outputs, *gradients)]


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
    """The devices of trained and frozen parameters, of the optimizer's state, and of the reference model."""
    found: dict[str, set[str]] = {"trained": set(), "frozen": set(), "state": set(), "reference": set()}
    for tag, engine in rank._engines.items():
        for parameter in engine.module.parameters():
            found["trained" if parameter.requires_grad else "frozen"].add(_device(parameter))
        state = rank._shards[tag].adamw.state.values()
        moments = [value for values in state for name, value in values.items() if name != "step"]
        found["state"] |= {str(tensor.device) for tensor in (*rank._shards[tag].masters, *moments)}
    if rank._reference is not None:
        found["reference"] = {_device(parameter) for parameter in rank._reference.parameters()}
    return {name: sorted(devices) for name, devices in found.items()}


def _device(parameter: torch.nn.Parameter) -> str:
    return str(getattr(parameter, "ds_tensor", parameter).device)
