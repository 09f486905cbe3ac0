"""vLLM's own sleep mode on a driver that only counts: the bytes that it maps while a colocated run changes hands.

The C++ part of vLLM's allocator maps memory and calls Python. A driver without a GPU replaces that part here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from vllm.device_allocator import cumem, sleep_mode_backend

from placement_models import QWEN_7B
from torl.components.engine.vllm.arguments import EngineDevices
from torl.components.engine.vllm.options import VllmOptions
from torl.components.engine.vllm.weights import EngineWeights
from torl.components.hub.shape import ModelShape
from torl.components.weights.rendezvous import Receivers, Rendezvous
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.placement.ledger import Ledger, compute_ledger
from torl.run.placement.machine import Machine
from torl.run.placement.resolve import resolve
from torl.training.residency import DeviceSharing, Residency

CARD = 85_520_809_984
SMALL = 1 << 20  # of the workspace, of the runner's state and of the graphs
PIECES = 4  # allocations of the weights, and of the cache


class Driver:
    """The memory that is mapped, by address. An address is mapped once at a time."""

    def __init__(self) -> None:
        self.mapped: dict[int, int] = {}
        self.copied_bytes = 0
        self._next = 1 << 40

    def create_and_map(self, device: int, size: int, address: int, handle: int) -> None:
        assert address not in self.mapped, "mapped twice"
        self.mapped[address] = size

    def unmap_and_release(self, device: int, size: int, address: int, handle: int) -> None:
        assert self.mapped.pop(address) == size

    def cudaMemcpy(self, destination: int, source: int, size: int) -> None:  # noqa: N802 -- of CUDA
        self.copied_bytes += size

    @property
    def total(self) -> int:
        return sum(self.mapped.values())

    def allocate(self, allocator: Any, size: int) -> None:
        """Allocate as vLLM's C++ function does: map, then report to Python."""
        address, self._next = self._next, self._next + size
        self.create_and_map(0, size, address, address)
        allocator._python_malloc_callback((0, size, address, address))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setattr(cumem, "python_create_and_map", driver.create_and_map)
    monkeypatch.setattr(cumem, "python_unmap_and_release", driver.unmap_and_release)
    monkeypatch.setattr(cumem, "libcudart", driver)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.accelerator, "empty_cache", lambda: None)
    return driver


@pytest.fixture
def allocator(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Any:
    @contextmanager
    def pool(*_: Any) -> Iterator[tuple[Any, Any]]:
        yield Snapshot(), None

    allocator = cumem.CuMemAllocator()
    monkeypatch.setattr(cumem, "use_memory_pool_with_allocator", pool)
    monkeypatch.setattr("vllm.device_allocator.get_mem_allocator_instance", lambda: allocator)
    return allocator


class Snapshot:
    def snapshot(self) -> list[Any]:
        return []


class Llm:
    """vLLM's front end, as far as it passes calls on to the backend of its worker."""

    def __init__(self) -> None:
        self.backend = sleep_mode_backend.CuMemBackend()

    async def sleep(self, level: int) -> None:
        self.backend.suspend(level)

    async def wake_up(self, tags: list[str]) -> None:
        self.backend.resume(tags)

    async def collective_rpc(self, method: str, args: Any) -> None:
        assert method == "torl_receive_weights"

    async def reset_prefix_cache(self, **_: Any) -> bool:
        return True


class Sides:
    """An engine on vLLM's allocator and a learner of planned size, and their sum after every change."""

    needs_weights = False
    is_serving = True

    def __init__(self, driver: Driver, ledger: Ledger) -> None:
        self.driver, self.ledger = driver, ledger
        self.llm, self.weights = Llm(), EngineWeights(0, VllmOptions())
        learner = ledger.learner
        self.parts = {"always": learner.always(), "parameters": learner.parameters(), "optimizer": learner.optimizer()}
        self.resident = {"always"}
        self.seen: list[tuple[str, int]] = []

    @property
    def learner_bytes(self) -> int:
        return sum(sum(self.parts[part].values()) for part in self.resident)

    def note(self, change: str) -> None:
        self.seen.append((change, self.driver.total + self.learner_bytes))

    async def sleep(self) -> None:
        await self.weights.sleep(self.llm, EngineDevices(on_cpu=False, ids=(0,)))
        self.note("sleep")

    async def wake(self, part: Any) -> None:
        await self.weights.wake(self.llm, EngineDevices(on_cpu=False, ids=(0,)), part)
        self.note(f"wake {part}")

    async def onload(self) -> None:
        self.resident = {*self.parts}
        self.note("onload")

    async def offload(self, part: Any) -> None:
        self.resident.discard(part)
        self.note(f"offload {part}")

    async def select_receivers(self) -> Receivers:
        return Receivers(1, nodes=(0,), changed=False)

    async def open_channel(self, receivers: Receivers) -> None: ...

    async def send_weights(self, rendezvous: Any, *, checksum: bool) -> None:
        self.note("transfer")

    async def receive_weights(self, rendezvous: Any, policy_version: int) -> None:
        await self.weights.receive(self.llm, Rendezvous("127.0.0.1", 1, 1), policy_version, first=0, live=False)


def start_engine(driver: Driver, allocator: Any, weights: int, cache: int) -> None:
    """Allocate in the order and under the tags of vLLM's worker."""
    with allocator.use_memory_pool("workspace"):
        driver.allocate(allocator, SMALL)
    with allocator.use_memory_pool("weights"):
        for _ in range(PIECES):
            driver.allocate(allocator, weights // PIECES)
    with allocator.use_memory_pool("runtime"):
        driver.allocate(allocator, SMALL)
        with allocator.use_memory_pool("kv_cache"):
            for _ in range(PIECES):
                driver.allocate(allocator, cache // PIECES)
    allocator.current_tag = "cudagraph"
    driver.allocate(allocator, SMALL)


def plan() -> Ledger:
    config = load_config(TrainConfig, find_config("torl_7b"), {})
    return compute_ledger(resolve(config, Machine.with_gpus(8, CARD)), ModelShape.from_config(QWEN_7B))


async def test_handover_maps_what_the_ledger_counts(driver: Driver, allocator: Any) -> None:
    ledger = plan()
    engine = ledger.engine
    start_engine(driver, allocator, engine.weights, engine.cache)
    sides: Any = Sides(driver, ledger)
    residency = Residency(sides, sides, DeviceSharing(True, True, True), policy_version=0)
    weights, cache = engine.weights // PIECES * PIECES, engine.cache // PIECES * PIECES
    always, parameters, optimizer = (sum(sides.parts[name].values()) for name in ("always", "parameters", "optimizer"))
    for version in (1, 2):
        sides.seen.clear()
        async with residency.lend_learner() as loan:
            await loan.publish(version)
        awake = weights + cache + 3 * SMALL
        assert sides.seen == [
            ("sleep", always),
            ("onload", always + parameters + optimizer),
            ("offload optimizer", always + parameters),
            ("wake weights", always + parameters + weights + 3 * SMALL),
            ("transfer", always + parameters + weights + 3 * SMALL),
            ("offload parameters", always + weights + 3 * SMALL),
            ("wake cache", always + awake),
        ]
    planned = {stage.name: sum(stage.on_gpu(0, ledger.placement).values()) for stage in ledger.stages}
    found = dict(sides.seen)
    kept = sum(engine.asleep().values())  # of a process that sleeps, outside of this allocator
    assert found["onload"] + kept <= planned["step"]
    assert found["transfer"] + kept <= planned["sync"] <= CARD
    assert found["wake cache"] + kept <= planned["sample"] <= CARD


async def test_sleep_copies_no_weights(driver: Driver, allocator: Any) -> None:
    start_engine(driver, allocator, 8 << 30, 16 << 30)
    sides = Sides(driver, plan())
    await sides.sleep()
    assert driver.total == 0
    assert driver.copied_bytes == 2 * SMALL  # the runner's state and the graphs
    await sides.wake("weights")
    assert driver.copied_bytes == 4 * SMALL
    assert driver.total == (8 << 30) + 3 * SMALL
    await sides.wake("cache")
    assert driver.total == allocator.get_current_usage() == (24 << 30) + 3 * SMALL


async def test_repeated_calls_map_nothing_twice(driver: Driver, allocator: Any) -> None:
    start_engine(driver, allocator, 8 << 30, 16 << 30)
    sides = Sides(driver, plan())
    for _ in range(2):
        await sides.sleep()
        assert driver.total == 0
    for part, total in [("weights", 8 << 30), ("weights", 8 << 30), ("cache", 24 << 30), ("cache", 24 << 30)]:
        await sides.wake(part)
        assert driver.total == total + 3 * SMALL


async def test_waking_a_restarted_engine_maps_nothing(driver: Driver, allocator: Any) -> None:
    """An engine that was restarted while others slept is awake already."""
    start_engine(driver, allocator, 8 << 30, 16 << 30)
    sides = Sides(driver, plan())
    for part in ("weights", "cache"):
        await sides.wake(part)
        assert driver.total == (24 << 30) + 3 * SMALL
    await sides.sleep()
    assert driver.total == 0
