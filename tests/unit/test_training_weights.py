"""How a run gives the learner's weights to its engine: what is asked of both, and in which order."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torl.config import TrainConfig
from torl.engine.protocol import WATCH_SECONDS
from torl.training.loop import Run


class EngineAndLearner:
    """Both in one, which write down what they are asked."""

    lacks_weights = False
    serves = True

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    async def expect_weights(self) -> int:
        return 6

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
        self.lacks_weights = False

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
    parts: Any = SimpleNamespace(config=config, player=SimpleNamespace(engine=both), learner=both, first_step=3)
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


@pytest.mark.parametrize("offload", [True, False])
async def test_an_engine_that_lacks_the_weights_is_sent_them_again_when_the_devices_allow_it(offload: bool) -> None:
    both = EngineAndLearner()
    run = make_run(both, verify=False, offload=offload)
    supplying = asyncio.create_task(run.supply_weights())
    both.lacks_weights = True
    if offload:  # another engine samples on the learner's devices
        await asyncio.sleep(3 * WATCH_SECONDS)
        assert both.asked == []
        both.serves = False
    moves = ["sleep", "onload", "wake", "open", "send", "receive", "offload"]
    expected = moves if offload else [move for move in moves if not move.endswith("load")]
    async with asyncio.timeout(60):
        while len(both.asked) < len(expected):
            await asyncio.sleep(0.01)
    assert [name for name, *_ in both.asked] == expected
    assert ("receive", "rendezvous", 3) in both.asked
    supplying.cancel()
    await asyncio.gather(supplying, return_exceptions=True)
