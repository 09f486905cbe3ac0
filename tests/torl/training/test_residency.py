"""Owners of the devices' memory: requests to engine and learner, their order, and refused configurations."""

import asyncio
from typing import Any

import pytest

from torl.components.engine.protocol import WATCH_SECONDS
from torl.components.weights.rendezvous import Receivers
from torl.training.residency import DeviceSharing, EngineMemory, InvalidTransitionError, LearnerMemory, Residency


class EngineAndLearner:
    """Both in one, which write down what they are asked."""

    needs_weights = False
    is_serving = True

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    async def select_receivers(self) -> Receivers:
        return Receivers(6, nodes=(0, 0, 0, 1, 1, 1), changed=False)

    async def sleep(self) -> None:
        self.asked.append(("sleep",))

    async def onload(self) -> None:
        self.asked.append(("onload",))

    async def wake(self, part: str) -> None:
        self.asked.append(("wake", part))

    async def open_channel(self, receivers: Receivers) -> str:
        self.asked.append(("open", receivers))
        return "rendezvous"

    async def send_weights(self, rendezvous: str, *, checksum: bool) -> None:
        self.asked.append(("send", rendezvous, checksum))

    async def receive_weights(self, rendezvous: str, policy_version: int) -> None:
        self.asked.append(("receive", rendezvous, policy_version))
        self.needs_weights = False

    async def offload(self, part: str) -> None:
        self.asked.append(("offload", part))


def both_sides(*, sleeps: bool, moves: bool, checksum: bool = False) -> tuple[EngineAndLearner, Residency]:
    both: Any = EngineAndLearner()
    sharing = DeviceSharing(colocated=True, engine_sleeps=sleeps, learner_offloads=moves)
    return both, Residency(both, both, sharing, policy_version=3, checksum=checksum)


@pytest.mark.parametrize("checksum", [True, False])
async def test_checksums_are_computed_if_weights_are_verified(checksum: bool) -> None:
    both, residency = both_sides(sleeps=False, moves=False, checksum=checksum)
    async with residency.lend_learner() as loan:
        await loan.publish(policy_version=7)
    opened = ("open", Receivers(6, (0, 0, 0, 1, 1, 1), changed=False, share_gpus=True))
    assert both.asked == [opened, ("send", "rendezvous", checksum), ("receive", "rendezvous", 7)]


TRANSFER = ["open", "send", "receive"]


@pytest.mark.parametrize(
    ("sleeps", "moves", "order"),
    [
        (
            True,
            True,
            ["sleep", "onload", "offload optimizer", "wake weights", *TRANSFER, "offload parameters", "wake cache"],
        ),
        (True, False, ["sleep", "offload cache", "wake weights", *TRANSFER, "wake cache"]),
        (False, True, ["onload", "offload optimizer", *TRANSFER, "offload parameters"]),
        (False, False, TRANSFER),
    ],
)
async def test_devices_are_handed_over_in_order(sleeps: bool, moves: bool, order: list[str]) -> None:
    """Each side allocates memory only when the other has freed as much. The order is the same in every step."""
    both, residency = both_sides(sleeps=sleeps, moves=moves)
    for version in (1, 2):
        both.asked.clear()
        async with residency.lend_learner():
            pass
        async with residency.lend_learner() as loan:  # the learner has kept the devices: no side moves
            await loan.publish(version)
        with_parts = {"offload", "wake"}
        assert [" ".join(request) if request[0] in with_parts else request[0] for request in both.asked] == order
        assert residency.engine_memory is EngineMemory.AWAKE
        assert residency.learner_memory is (LearnerMemory.OFFLOADED if moves else LearnerMemory.RESIDENT)


async def test_offloaded_learner_is_not_lent() -> None:
    both, residency = both_sides(sleeps=True, moves=True)
    async with residency.lend_learner() as loan:
        assert loan.learner is both
        residency.learner_memory = LearnerMemory.PARAMETERS
        with pytest.raises(InvalidTransitionError, match="the learner must be resident, and is parameters"):
            _ = loan.learner
        residency.learner_memory = LearnerMemory.RESIDENT
        await loan.publish(1)
        with pytest.raises(InvalidTransitionError, match="the learner must be resident, and is offloaded"):
            _ = loan.learner


@pytest.mark.parametrize(("sleeps", "moves"), [(True, True), (True, False), (False, True), (False, False)])
async def test_weights_are_published_only_while_the_learner_has_the_devices(sleeps: bool, moves: bool) -> None:
    both, residency = both_sides(sleeps=sleeps, moves=moves)
    async with residency.lend_learner() as loan:
        await loan.publish(1)
        both.asked.clear()
        if not (sleeps or moves):
            await loan.publish(2)
            return
        with pytest.raises(InvalidTransitionError):
            await loan.publish(2)
        assert both.asked == []


async def test_no_weights_are_published_to_an_engine_that_is_awake() -> None:
    both, residency = both_sides(sleeps=True, moves=False)
    async with residency.lend_learner() as loan:
        await loan.publish(1)
        both.asked.clear()
        with pytest.raises(InvalidTransitionError, match="the engine is awake"):
            await loan.publish(2)
        assert both.asked == []


async def test_one_loan_at_a_time() -> None:
    _, residency = both_sides(sleeps=True, moves=True)
    async with residency.lend_learner() as loan:
        other = asyncio.ensure_future(publish(residency, 2))
        await asyncio.sleep(0.01)
        assert not other.done()
        await loan.publish(1)
    await other


async def publish(residency: Residency, version: int) -> None:
    async with residency.lend_learner() as loan:
        await loan.publish(version)


@pytest.mark.parametrize("turns", [True, False])
async def test_engine_without_weights_receives_them_when_devices_allow(turns: bool) -> None:
    both, residency = both_sides(sleeps=turns, moves=turns)
    supplying = asyncio.create_task(residency.resend_weights())
    both.needs_weights = True
    if turns:  # another engine samples on the learner's devices
        await asyncio.sleep(3 * WATCH_SECONDS)
        assert both.asked == []
        both.is_serving = False
    moves = ["sleep", "onload", "offload", "wake", *TRANSFER, "offload", "wake"]
    expected = moves if turns else TRANSFER
    async with asyncio.timeout(60):
        while len(both.asked) < len(expected):
            await asyncio.sleep(0.01)
    assert [name for name, *_ in both.asked] == expected
    assert ("receive", "rendezvous", 3) in both.asked
    supplying.cancel()
    await asyncio.gather(supplying, return_exceptions=True)
