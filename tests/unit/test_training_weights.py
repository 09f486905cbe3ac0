"""How a run gives the learner's weights to its engine: what is asked of both, and in which order."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torl.config import TrainConfig
from torl.training.loop import Run


class EngineAndLearner:
    """Both in one, which write down what they are asked."""

    workers = 6

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


def make_run(both: EngineAndLearner, *, verify: bool, offload: bool) -> Run:
    config = TrainConfig.model_validate(
        {
            "run": {"directory": Path("runs"), "steps": 1},
            "model": {"path": ""},
            "data": {"train": "problems.jsonl"},
            "learner": {"offload_while_sampling": offload, "verify_weights": verify},
        }
    )
    parts: Any = SimpleNamespace(config=config, player=SimpleNamespace(engine=both), learner=both)
    experience: Any = None
    return Run(parts, experience)


@pytest.mark.parametrize("verify", [True, False])
async def test_checksums_are_taken_if_weights_are_to_be_verified(verify: bool) -> None:
    both = EngineAndLearner()
    await make_run(both, verify=verify, offload=False).publish_weights(policy_version=7)
    assert both.asked == [("wake",), ("open", 7), ("send", "rendezvous", verify), ("receive", "rendezvous", 7)]


async def test_shared_devices_are_handed_over_in_order() -> None:
    both = EngineAndLearner()
    run = make_run(both, verify=False, offload=True)
    await run.give_devices_to_learner()
    await run.publish_weights(policy_version=1)
    assert [name for name, *_ in both.asked] == ["sleep", "onload", "wake", "open", "send", "receive", "offload"]
