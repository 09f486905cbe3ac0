"""The exhibits of the museum in the learner and on the way of weights: bugs that change what they say they change."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.doctors.exhibits.catalog import EXHIBITS, applied, load_all
from torl.base.types import TrainingSample
from torl.learner import objective, update
from torl.learner.batch import pack_batch
from torl.learner.checkpoint import snapshot
from torl.learner.deepspeed_engine import learning_rate_at
from torl.learner.model.lora import MergedWeight
from torl.learner.publishing import WeightPublisher
from torl.learner.rows import PackedRow, RowPieces
from torl.run.config import AlgorithmConfig

load_all()
CPU = torch.device("cpu")


def wrapped(name: str, original: Any) -> Any:
    """The function with the bug of an exhibit for another original than torl's."""
    return next(iter(EXHIBITS[name].patches.values()))(original)


def row(advantage: float = 1.0) -> PackedRow:
    """A row of two samples with four sampled tokens."""
    samples = [
        TrainingSample(
            token_ids=np.arange(4, dtype=np.int32),
            loss_mask=np.array([False, False, True, True]),
            rollout_logprobs=np.array([0, 0, -1, -1], np.float32),
            advantages=np.array([0, 0, advantage, advantage], np.float32),
            old_logprobs=np.array([0, 0, -1, -1], np.float32),
            ref_logprobs=np.array([0, 0, -2, -2], np.float32),
        )
        for _ in range(2)
    ]
    return pack_batch(samples, max_row_tokens=8, ranks=1).rows[0][0]


def objective_of(name: str | None, algorithm: AlgorithmConfig, advantage: float = 1.0) -> tuple[Any, torch.Tensor]:
    """The objective of a row whose tokens became twice as probable, and the log-probabilities with gradient."""
    logprobs = torch.full((4,), -1.0 + np.log(2), requires_grad=True)
    tensors = objective.RowTensors(row(advantage), CPU)
    if name is None:
        return update.policy_objective(logprobs, torch.ones(4), tensors, algorithm), logprobs
    with applied(EXHIBITS[name]):
        return update.policy_objective(logprobs, torch.ones(4), tensors, algorithm), logprobs


def test_the_clipped_loss_is_not_used() -> None:
    algorithm = AlgorithmConfig()
    healthy, _ = objective_of(None, algorithm)
    found, logprobs = objective_of("unused-clip", algorithm)
    assert healthy.loss.item() == pytest.approx(-1.2)
    assert found.loss.item() == pytest.approx(-2.0)
    assert found.sums["clip_fraction"] == healthy.sums["clip_fraction"] == 4
    found.loss.backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([-0.5] * 4)


def test_the_kl_term_has_the_other_sign() -> None:
    algorithm = AlgorithmConfig.model_validate({"kl": {"coefficient": 0.3}})
    without, _ = objective_of(None, AlgorithmConfig())
    healthy, _ = objective_of(None, algorithm)
    found, _ = objective_of("inverted-kl", algorithm)
    assert healthy.loss > without.loss
    assert (found.loss - without.loss).item() == pytest.approx((without.loss - healthy.loss).item(), abs=1e-5)
    assert found.sums["reference_kl"] == healthy.sums["reference_kl"]


def test_the_loss_has_no_gradient() -> None:
    healthy, _ = objective_of(None, AlgorithmConfig())
    found, logprobs = objective_of("detached-loss", AlgorithmConfig())
    assert found.loss.item() == pytest.approx(healthy.loss.item())
    found.loss.backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [0.0] * 4


def test_logprobs_have_temperature_one() -> None:
    seen = []

    def run(engine: Any, row: Any, temperature: float, **options: Any) -> None:
        seen.append(temperature)

    wrapped("missing-temperature", run)(None, None, 0.7, entropy="off")
    assert seen == [1.0]


def test_rows_attend_to_all_their_samples() -> None:
    assert objective.RowTensors(row(), CPU).pieces.lengths == (4, 4)
    with applied(EXHIBITS["leaking-rows"]):
        leaking = objective.RowTensors(row(), CPU)
    assert leaking.pieces == RowPieces((8,), (None,))
    assert leaking.position_ids_N.tolist() == list(range(8))


def test_gradients_of_rows_are_multiplied() -> None:
    weight = torch.ones(1, requires_grad=True)
    engine = SimpleNamespace(backward=lambda loss, **options: loss.backward(), module="the module")

    def step(engine: Any, rows: Any) -> str:
        engine.backward((2 * weight).sum(), scale_wrt_gas=False)
        return str(engine.module)

    assert wrapped("undivided-gradient", step)(engine, [1, 2, 3]) == "the module"
    assert weight.grad is not None
    assert weight.grad.item() == 6


def test_the_rate_decays_too_quickly() -> None:
    config = SimpleNamespace(warmup_steps=0, lr_schedule="linear", learning_rate=1.0)
    assert learning_rate_at(4, 16, config) == 0.75  # type: ignore[arg-type]
    assert wrapped("quick-decay", learning_rate_at)(2, 16, config) == 0.5


def test_masters_are_rounded() -> None:
    master = torch.full((3,), 1.0 + 2**-12)
    groups = [[torch.ones(3, dtype=torch.bfloat16)]]
    engine = SimpleNamespace(optimizer=SimpleNamespace(fp16_groups=groups, fp32_groups=[[master]]))
    assert wrapped("lost-updates", lambda engine, rate: 0.5)(engine, 1e-6) == 0.5
    assert master.tolist() == [1.0] * 3


def test_moments_are_lost_at_a_restart() -> None:
    steps = []
    state = SimpleNamespace(set_steps=steps.append)
    wrapped("cold-optimizer", lambda state, index, directory: state.set_steps(7))(state, None, None)
    assert steps == [7, 0]
    assert snapshot._restore_state.__module__ == "torl.learner.checkpoint.snapshot"


def published(name: str, weights: Any) -> list[tuple[str, torch.Tensor]]:
    with applied(EXHIBITS[name]):
        publisher = WeightPublisher(weights, SimpleNamespace(), rank=0, world_size=1, cuda=False)  # type: ignore[arg-type]
    list(publisher._weights())
    return [(key, tensor.clone()) for key, tensor in publisher._weights()]


def test_weights_are_old() -> None:
    weight = torch.zeros(2)

    def weights() -> list[tuple[str, torch.Tensor]]:
        weight.add_(1)
        return [("w", weight)]

    ((_, found),) = published("old-weights", weights)
    assert found.tolist() == [1, 1]
    assert [tensor.tolist() for _, tensor in weights()] == [[2, 2]]


def test_weights_lack_the_adapter() -> None:
    layer = SimpleNamespace(weight=torch.nn.Parameter(torch.ones(2, 2)))
    adapter: Any = SimpleNamespace(lora_A={"default": layer}, lora_B={"default": layer}, scaling={"default": 1.0})
    weight = MergedWeight("w", torch.nn.Parameter(torch.zeros(2, 2)), adapter)
    ((_, found),) = published("missing-adapter", lambda: [("w", weight.value())])
    assert found.tolist() == [[0, 0], [0, 0]]
    assert weight.value().tolist() == [[2, 2], [2, 2]]


async def test_prefixes_are_old() -> None:
    class Llm:
        resets = 0

        async def reset_prefix_cache(self, **options: Any) -> bool:
            self.resets += 1
            return True

    async def receive(self: Any, llm: Any, rendezvous: Any, version: int) -> bool:
        reset: bool = await llm.reset_prefix_cache(reset_running_requests=True)
        return reset

    llm = Llm()
    assert await receive(None, llm, None, 1)
    await wrapped("old-prefixes", receive)(None, llm, None, 2)
    assert llm.resets == 1
