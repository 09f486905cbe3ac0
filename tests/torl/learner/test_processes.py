"""The learner's processes: what they hand out is right, and none survives an error, a kill, or the controller."""

import asyncio
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from learner_fixtures import (
    GRADIENT_CLIP,
    LEARNING_RATE,
    TEMPERATURE,
    VOCABULARY,
    distance_after_adamw,
    plain_logprobs,
    plain_steps,
    random_samples,
    read_weights,
    start_learner,
    write_tiny_model,
)
from places import HELPERS
from torl.base.errors import DataError, DivergedError, LearnerDiedError, LearnerError
from torl.components.weights.channel import WeightChannel
from torl.components.weights.rendezvous import Endpoint, Receivers
from torl.learner.checkpoint.directory import checkpoint_path, latest_checkpoint
from torl.learner.learner import Learner
from torl.run.config import AlgorithmConfig, CriticConfig

CONTROLLER = HELPERS / "learner_controller.py"


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose input and output embeddings are two tensors."""
    return write_tiny_model(tmp_path_factory.mktemp("learner-model"), tied=False)


def processes(learner: Learner) -> list[subprocess.Popen[bytes]]:
    """The ranks' processes."""
    return [rank.process for rank in learner._group.ranks if rank.process is not None]


def is_running(process: int) -> bool:
    """Whether a process exists and has not ended; a zombie whose parent exited has."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(pids: list[int], seconds: float = 60.0) -> list[int]:
    """The processes that are still there after `seconds`."""
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def received_weights(channel: WeightChannel) -> dict[str, torch.Tensor]:
    """One transfer."""
    return {name: tensor.clone() for name, tensor in channel.receive()}


@pytest.mark.usefixtures("forked_ranks")
async def test_file_of_the_process_group_exists_as_long_as_the_group(model_directory: Path, tmp_path: Path) -> None:
    """NCCL's monitor thread reads it every second, and waits until the group's timeout if it does not exist."""
    async with await start_learner(model_directory, tmp_path / "logs") as learner:
        directory = learner._group.scratch.open()
        assert (directory / "store").is_file()
    assert not directory.exists()


@pytest.mark.usefixtures("forked_ranks")
async def test_logprobs_updates_weights_and_export(model_directory: Path, tmp_path: Path) -> None:
    samples = random_samples(7, seed=5)
    model = AutoModelForCausalLM.from_pretrained(model_directory, dtype=torch.float32).eval()
    # Two updates on the same samples: the second one's ratio is not 1 any more, and some of it is clipped.
    settings = {"algorithm": AlgorithmConfig(epochs=2), "zero_stage": 3, "ranks": 2, "max_row_tokens": 50}
    async with await start_learner(model_directory, tmp_path / "logs", **settings) as learner:
        samples = await learner.annotate(samples)
        for sample in samples:
            found = sample.old_logprobs
            expected = plain_logprobs(model, sample, TEMPERATURE).detach().numpy() * sample.loss_mask[1:]
            np.testing.assert_allclose(found, [0, *expected], atol=1e-5)

        report = await learner.update(samples, step=0)
        expected_weights, losses, _ = plain_steps(
            model_directory,
            [samples, samples],
            temperature=TEMPERATURE,
            learning_rate=LEARNING_RATE,
            gradient_clip=GRADIENT_CLIP,
        )
        assert report["updates"] == 2
        assert report["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
        assert report["approximate_kl"] > 0

        rendezvous = await learner.open_channel(Receivers(3))  # of them rank 0 sends to two, and rank 1 to one
        assert rendezvous.transport == "shared_memory"
        channels = [WeightChannel(rendezvous, Endpoint("receiver", number)) for number in range(3)]
        for _ in range(2):  # a channel lasts for many transfers
            assert await learner.open_channel(Receivers(3)) == rendezvous
            summary, *received = await asyncio.gather(
                learner.send_weights(rendezvous, checksum=True),
                *(asyncio.to_thread(received_weights, channel) for channel in channels),
            )
        for channel in channels:
            channel.close()
        again = await learner.open_channel(Receivers(1, changed=True))  # rank 1 only helps to gather
        channel = WeightChannel(again, Endpoint("receiver", 0))
        _, alone = await asyncio.gather(learner.send_weights(again), asyncio.to_thread(received_weights, channel))
        received.append(alone)
        await learner.export(tmp_path / "exported")
    assert [process.returncode for process in processes(learner)] == [0, 0]

    exported = read_weights(tmp_path / "exported")
    assert distance_after_adamw(exported, expected_weights, max_update=4 * LEARNING_RATE) < 2e-7  # two updates
    for weights in received:
        assert weights.keys() == exported.keys()
        assert all(torch.equal(weights[name], exported[name]) for name in exported)
    assert summary.tensors == len(exported)
    assert summary.bytes == sum(tensor.nbytes for tensor in exported.values())

    again = AutoModelForCausalLM.from_pretrained(tmp_path / "exported", dtype=torch.float32).eval()
    assert again.config.attention_dropout == 0.1  # the model's own settings are kept
    ids = torch.arange(20)[None] % VOCABULARY
    model.load_state_dict(expected_weights)
    with torch.no_grad():
        torch.testing.assert_close(again(ids).logits, model(ids).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("forked_ranks")
async def test_gradient_that_is_not_finite_ends_the_learner(model_directory: Path, tmp_path: Path) -> None:
    samples = random_samples(3, seed=6)
    samples[1] = replace(samples[1], advantages=np.where(samples[1].loss_mask, 3e38, 0).astype(np.float32))
    async with await start_learner(model_directory, tmp_path / "logs") as learner:
        with pytest.raises(DivergedError, match=r"^the gradient is not finite at a learning rate of 0\.001; "):
            await learner.update(samples, step=0)
        assert not any(process.poll() is None for process in processes(learner))
        with pytest.raises(LearnerError, match="failed before"):
            await learner.update(samples, step=1)


@pytest.mark.usefixtures("forked_ranks")
@pytest.mark.parametrize(("estimator", "diverged"), [("grpo", "policy"), ("ppo", "critic")])
async def test_update_to_a_model_that_is_not_finite_is_an_error(
    model_directory: Path, tmp_path: Path, estimator: str, diverged: str
) -> None:
    """The weights are finite: products of them overflow in the next forward pass."""
    samples = [replace(sample, returns=sample.advantages) for sample in random_samples(3)]
    starting = start_learner(
        model_directory,
        tmp_path / "logs",
        learning_rate=1e12 if estimator == "grpo" else LEARNING_RATE,
        algorithm=AlgorithmConfig.model_validate({"estimator": estimator}),
        critic=CriticConfig(learning_rate=1e12),
    )
    async with await starting as learner:
        samples = await learner.annotate(samples)
        section = "learner" if diverged == "policy" else "critic"
        message = f"the {diverged} is not finite after step 7 ({section}.learning_rate = 1e+12)"
        with pytest.raises(DivergedError, match=re.escape(message)):
            await learner.update(samples, step=6)


@pytest.mark.usefixtures("forked_ranks")
async def test_a_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no-such-model: no such directory"):
        await start_learner(tmp_path / "no-such-model", tmp_path / "logs")


@pytest.mark.usefixtures("forked_ranks")
async def test_a_killed_rank_is_noticed_at_once(model_directory: Path, tmp_path: Path) -> None:
    learner = await start_learner(model_directory, tmp_path / "logs", ranks=2, zero_stage=2)
    watch = asyncio.create_task(learner.watch())
    await learner.update(random_samples(4, seed=7), step=0)
    assert not watch.done()
    processes(learner)[1].send_signal(signal.SIGKILL)
    with pytest.raises(LearnerError, match="learner rank 1 was ended by SIGKILL"):
        await asyncio.wait_for(watch, 120)  # nothing else would ever end it: no command is under way
    assert not any(process.poll() is None for process in processes(learner))
    await learner.close()  # nothing is left to fail


@pytest.mark.usefixtures("forked_ranks")
async def test_a_rank_killed_in_the_middle_of_a_step(model_directory: Path, tmp_path: Path) -> None:
    # Hundreds of rows for each rank, each with its collectives: a step of many seconds.
    learner = await start_learner(model_directory, tmp_path / "logs", ranks=2, zero_stage=3, max_row_tokens=41)
    many = random_samples(2000, seed=8)
    step = asyncio.create_task(learner.update(many, step=0))
    await asyncio.sleep(0.5)
    assert not step.done()
    processes(learner)[0].send_signal(signal.SIGKILL)
    with pytest.raises(LearnerDiedError, match="learner rank 0 was ended by SIGKILL"):
        await asyncio.wait_for(step, 120)
    assert not any(process.poll() is None for process in processes(learner))
    with pytest.raises(LearnerDiedError, match="failed before: learner rank 0 was ended"):  # who notices it second
        await learner.update(random_samples(3, seed=6), step=1)


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, None], ids=["killed", "orderly"])
def test_no_rank_survives_its_controller(
    signal_number: signal.Signals | None, model_directory: Path, tmp_path: Path
) -> None:
    controller = subprocess.Popen(
        [sys.executable, str(CONTROLLER), str(model_directory), str(tmp_path / "logs")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert controller.stdin is not None
    assert controller.stdout is not None
    with controller:
        line = controller.stdout.readline()
        assert line, "the controller ended early"
        ranks: list[int] = json.loads(line)["processes"]
        assert len(ranks) == 2
        assert all(is_running(pid) for pid in ranks)
        if signal_number is not None:
            controller.send_signal(signal_number)
        controller.stdin.close()
        assert controller.wait(60) == (0 if signal_number is None else -signal_number)
    assert wait_until_gone(ranks) == []


KILLED_WHILE_WRITING = """
import asyncio, os, signal, sys
from pathlib import Path
from learner_fixtures import random_samples, start_learner
from torl.learner.checkpoint.directory import checkpoint_path

async def control(model, run):
    learner = await start_learner(model, run.parent / "logs", ranks=2, zero_stage=2)
    print(*(rank.process.pid for rank in learner._group.ranks), flush=True)
    await learner.save_checkpoint(checkpoint_path(run, 0), {"step": 0})
    await learner.update(random_samples(3), step=0)
    await learner.begin_checkpoint(checkpoint_path(run, 1), {"step": 1})
    os.kill(os.getpid(), signal.SIGKILL)  # before it hears that the ranks have written

asyncio.run(control(Path(sys.argv[1]), Path(sys.argv[2])))
"""


def test_a_controller_killed_while_a_checkpoint_is_written_leaves_no_rank(
    model_directory: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    program = [sys.executable, "-c", KILLED_WHILE_WRITING, str(model_directory), str(run)]
    ended = subprocess.run(program, capture_output=True, text=True, check=False, cwd=CONTROLLER.parent)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    ranks = [int(process) for process in ended.stdout.split()]
    assert len(ranks) == 2
    assert wait_until_gone(ranks) == []
    names = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert len(names) == 2
    assert names[0].startswith(".partial-step_000001")
    assert latest_checkpoint(run) == checkpoint_path(run, 0)


FULL_DISK = """
import asyncio, sys
from pathlib import Path
from learner_fixtures import random_samples, start_learner
from torl.base.errors import CheckpointError
from torl.learner.checkpoint.directory import checkpoint_path, latest_checkpoint

async def control(model, run):
    learner = await start_learner(model, run.parent / "logs", zero_stage=2)
    await learner.save_checkpoint(checkpoint_path(run, 0), {})
    await learner.update(random_samples(3), step=0)
    try:
        await learner.save_checkpoint(checkpoint_path(run, 1), {})
    except CheckpointError as error:
        print(error)
    metrics = await learner.update(random_samples(3), step=1)  # the ranks live: they wrote behind the training
    assert metrics["updates"] == 1
    await learner.close()
    assert latest_checkpoint(run) == checkpoint_path(run, 0)
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step_000000"]

asyncio.run(control(Path(sys.argv[1]), Path(sys.argv[2])))
"""


def test_a_disk_that_is_full_in_the_middle_of_a_checkpoint(model_directory: Path, tmp_path: Path) -> None:
    """On a file system that has room for one checkpoint without optimizer state, mounted in a separate namespace."""
    run = tmp_path / "run"
    run.mkdir()
    namespace = ["unshare", "--map-root-user", "--mount"]
    mount = f"mount -t tmpfs -o size=300k none {run} && exec "
    if (
        shutil.which("unshare") is None
        or subprocess.run([*namespace, "sh", "-c", mount + "true"], check=False).returncode
    ):
        pytest.skip("this machine does not let its users mount a file system in a namespace")
    program = [sys.executable, "-c", FULL_DISK, str(model_directory), str(run)]
    ended = subprocess.run(
        [*namespace, "sh", "-c", mount + '"$@"', "sh", *program],
        capture_output=True,
        text=True,
        check=False,
        cwd=CONTROLLER.parent,
    )
    assert ended.returncode == 0, ended.stderr
    assert "could not write its part of checkpoint" in ended.stdout
    assert "the disk is full" in ended.stdout
