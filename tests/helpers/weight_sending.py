"""Weights sent by a separate process, as a learner's rank sends them: to an engine, or to a plain receiver."""

import asyncio
import json
import os
import shutil
import sys
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from torl.components.weights.channel import WeightChannel
from torl.components.weights.rendezvous import Endpoint, Rendezvous, TransportName

SENDER = Path(__file__).with_name("weight_sender.py")


@asynccontextmanager
async def sending(
    model: Path, directory: Path, *options: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[Rendezvous, Any]]:
    """Start a process that sends the weights of `model`; yield its address, and it; `directory` is for its notes."""
    where = directory / f"rendezvous-{uuid.uuid4().hex}"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *(str(SENDER), str(model), "--rendezvous", str(where), *options),
        env=os.environ | (environment or {}),
    )
    try:
        while not where.exists():
            assert process.returncode is None
            await asyncio.sleep(0.05)
        yield Rendezvous(**json.loads(where.read_text())), process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def perturbed(model: Path, directory: Path) -> Path:
    """The same model with every weight moved a little; returns its directory."""
    from transformers import Qwen2ForCausalLM

    changed = Qwen2ForCausalLM.from_pretrained(model, dtype=torch.float32)
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    changed.save_pretrained(directory)
    for file in model.glob("tokenizer*"):
        shutil.copy(file, directory)
    return directory


async def assert_weights_arrive(
    model: Path,
    directory: Path,
    transport: TransportName,
    device: torch.device,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Twice over one channel: every tensor of `model` is here afterwards, on `device`, to the bit.

    Both sides compare checksums of every bucket, which must have found nothing.
    """
    expected = load_file(model / "model.safetensors")
    options = ("--transport", transport, "--transfers", "2")
    async with sending(model, directory, *options, environment=environment) as (rendezvous, process):

        def receive() -> list[dict[str, torch.Tensor]]:
            channel = WeightChannel(rendezvous, Endpoint("receiver", 0), device=device)
            try:
                return [{name: tensor.clone() for name, tensor in channel.receive()} for _ in range(2)]
            finally:
                channel.close()

        received = await asyncio.to_thread(receive)
        assert await process.wait() == 0
    for found in received:
        assert found.keys() == expected.keys()
        assert {tensor.device.type for tensor in found.values()} == {device.type}
        assert all(torch.equal(found[name].cpu(), expected[name]) for name in expected)
