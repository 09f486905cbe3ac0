"""Who holds the devices' memory: what is asked of engine and learner, in which order, and what is refused."""

import asyncio
from typing import Any

import pytest

from torl.engine.protocol import WATCH_SECONDS
from torl.training.residency import EngineMemory, InvalidTransitionError, LearnerMemory, Residency
from torl.weights.rendezvous import Receivers


class EngineAndLearner:
    """Both in one, which write down what they are asked."""

    needs_weights = False
    is_serving = True
    receivers_changed = False
    receiver_nodes = (0, 0, 0, 1, 1, 1)

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    async def count_receivers(self) -> int:
        return 6

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
    residency = Residency(
        both, both, colocated=True, engine_sleeps=sleeps, offloads_learner=moves, checksum=checksum, policy_version=3
    )
    return both, residency


@pytest.mark.parametrize("checksum", [True, False])
async def test_checksums_are_taken_if_weights_are_to_be_verified(checksum: bool) -> None:
    both, residency = both_sides(sleeps=False, moves=False, checksum=checksum)
    await residency.publish(policy_version=7)
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
        (True, False, ["sleep", "wake weights", *TRANSFER, "wake cache"]),
        (False, True, ["onload", "offload optimizer", *TRANSFER, "offload parameters"]),
        (False, False, TRANSFER),
    ],
)
async def test_devices_are_handed_over_in_order(sleeps: bool, moves: bool, order: list[str]) -> None:
    """Each takes memory only when the other has let go of as much; the order is the same in every step."""
    both, residency = both_sides(sleeps=sleeps, moves=moves)
    for version in (1, 2):
        both.asked.clear()
        await residency.give_to_learner()
        await residency.give_to_learner()  # it has them: nothing is asked
        await residency.publish(version)
        with_parts = {"offload", "wake"}
        assert [" ".join(asked) if asked[0] in with_parts else asked[0] for asked in both.asked] == order
        assert residency.engine_memory is EngineMemory.AWAKE
        assert residency.learner_memory is (LearnerMemory.OFFLOADED if moves else LearnerMemory.RESIDENT)


@pytest.mark.parametrize("command", ["prepare", "update", "export", "send_weights"])
async def test_a_learner_that_is_away_is_asked_for_nothing(command: str) -> None:
    both, residency = both_sides(sleeps=True, moves=True)
    with pytest.raises(
        InvalidTransitionError, match=f"{command} needs a learner that is .*resident, and it is offloaded"
    ):
        residency.require_learner(command)
    await residency.give_to_learner()
    assert residency.require_learner(command) is both
    residency.learner_memory = LearnerMemory.PARAMETERS
    if command != "send_weights":
        with pytest.raises(InvalidTransitionError, match="it is parameters"):
            residency.require_learner(command)


@pytest.mark.parametrize(("sleeps", "moves"), [(True, True), (True, False), (False, True), (False, False)])
async def test_weights_are_published_by_a_learner_that_has_the_devices_only(sleeps: bool, moves: bool) -> None:
    both, residency = both_sides(sleeps=sleeps, moves=moves)
    if not (sleeps or moves):
        await residency.publish(1)
        return
    with pytest.raises(InvalidTransitionError):
        await residency.publish(1)
    assert both.asked == []


async def test_an_engine_that_is_awake_is_sent_nothing_over_what_it_holds() -> None:
    both, residency = both_sides(sleeps=True, moves=False)
    with pytest.raises(InvalidTransitionError, match="the engine is awake"):
        await residency.publish(1)
    assert both.asked == []


@pytest.mark.parametrize("turns", [True, False])
async def test_an_engine_that_lacks_the_weights_is_sent_them_again_when_the_devices_allow_it(turns: bool) -> None:
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
