"""How a run gives the learner's weights to its engine: what is asked of both, and in which order."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torl.config import DataConfig, EngineConfig, LearnerConfig, ModelConfig, RunConfig, TrainConfig
from torl.train import Run


class Parts:
    """Engine and learner in one, which write down what they are asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    async def sleep(self) -> None:
        self.asked.append(("sleep",))

    async def onload(self) -> None:
        self.asked.append(("onload",))

    async def wake(self) -> None:
        self.asked.append(("wake",))

    async def open_channel(self, ranks: int) -> str:
        self.asked.append(("open", ranks))
        return "rendezvous"

    async def send_weights(self, rendezvous: str, *, checksum: bool) -> None:
        self.asked.append(("send", rendezvous, checksum))

    async def receive_weights(self, rendezvous: str, policy_version: int) -> None:
        self.asked.append(("receive", rendezvous, policy_version))

    async def offload(self) -> None:
        self.asked.append(("offload",))


def make_run(parts: Parts, **settings: Any) -> Run:
    config = TrainConfig(
        run=RunConfig(directory=Path("runs"), steps=1),
        model=ModelConfig(path=""),
        data=DataConfig(train=""),
        engine=EngineConfig(verify_weights=settings["verify"], tensor_parallel=2, data_parallel=3),
        learner=LearnerConfig(offload_while_sampling=settings["offload"]),
    )
    others = ["directory", "console", "sampler", "evaluation_sets", "sandbox", "grader", "experience", "writer"]
    nothing: dict[str, Any] = dict.fromkeys(others)
    player: Any = SimpleNamespace(engine=parts)
    learner: Any = parts
    return Run(config=config, player=player, learner=learner, first_step=0, **nothing)


@pytest.mark.parametrize("verify", [True, False])
async def test_checksums_are_taken_if_the_engine_is_to_verify_its_weights(verify: bool) -> None:
    parts = Parts()
    await make_run(parts, verify=verify, offload=False).synchronise_weights(policy_version=7)
    assert parts.asked == [("wake",), ("open", 7), ("send", "rendezvous", verify), ("receive", "rendezvous", 7)]


async def test_shared_devices_are_handed_over_in_order() -> None:
    parts = Parts()
    run = make_run(parts, verify=False, offload=True)
    await run._share_devices_with_learner()
    await run.synchronise_weights(policy_version=1)
    assert [name for name, *_ in parts.asked] == ["sleep", "onload", "wake", "open", "send", "receive", "offload"]
