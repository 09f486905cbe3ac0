"""`torl plan`: predict the bytes of every stage of a run, and on GPUs a lower bound of a step's time."""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torl.base.errors import ConfigError
from torl.commands.command import reports_errors
from torl.components.hub import resolve_model_config
from torl.components.hub.shape import ModelShape
from torl.run.config import TrainConfig
from torl.run.config.command_line import config_parser, parse_config
from torl.run.placement.changes import advice
from torl.run.placement.fit import (
    crowded_memory,
    describe_update,
    explain,
    gib,
    require_division,
    with_update_settings,
)
from torl.run.placement.ledger import Ledger, compute_ledger
from torl.run.placement.machine import Machine, combine_machines, format_ranges, this_machine
from torl.run.placement.resolve import local_engine_options, resolve

_PROGRAM = "torl plan"
_DESCRIPTION = (
    "Predict the memory of a run in every stage, on every GPU and in the host, and on GPUs a lower bound of a step's "
    "time. The last line is JSON. The exit status is 0 if the run fits, and 1 if it does not."
)
_SIDES = ("learner", "engine", "host")  # bytes of a stage: on one GPU of each side, and in CPU memory


@dataclass(frozen=True, slots=True)
class Card:
    """Peak rates of a GPU, from its maker's data sheet.

    Attributes:
        flops: Dense bfloat16 operations per second.
        memory: Bytes of its memory per second.
    """

    flops: float
    memory: float


CARDS = {
    "B200": Card(2250e12, 8.0e12),
    "H200": Card(989e12, 4.8e12),
    "H100": Card(989e12, 3.35e12),
    "A100": Card(312e12, 2.0e12),
    "L40S": Card(362e12, 0.86e12),
    "4090": Card(165e12, 1.0e12),
}
"""Cards by a word of the GPU's product name."""


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 0 if the run fits, 1 if it does not, 2 after an error."""
    parser = config_parser(_PROGRAM, _DESCRIPTION, "[--gpus COUNT] ")
    parser.add_argument("--gpus", type=int, metavar="COUNT", help="number of GPUs (default: those of this machine)")
    parser.add_argument(
        "--nodes",
        type=int,
        default=1,
        metavar="COUNT",
        help="number of such machines, as nodes of a cluster (default: 1)",
    )
    parser.add_argument(
        "--gpu-memory", type=float, default=79.6, metavar="GIB", help="memory of each GPU (default: 79.6, an H100)"
    )
    parser.add_argument("--host-memory", type=float, metavar="GIB", help="memory of the host (default: this machine's)")
    parser.add_argument(
        "--card", choices=sorted(CARDS), help="GPU whose data sheet gives the time (default: this machine's)"
    )
    parser.add_argument(
        "--model",
        dest="shape",
        metavar="PATH",
        type=Path,
        help="directory or config.json of the model (default: model.path)",
    )
    parser.add_argument(
        "--prompt-tokens", type=int, metavar="COUNT", help="mean length of a prompt (default: half of its limit)"
    )
    parser.add_argument(
        "--response-tokens",
        type=int,
        metavar="COUNT",
        help="mean length of a response (default: a quarter of its limit)",
    )
    config, options = parse_config(parser, TrainConfig, _PROGRAM, sys.argv[1:] if arguments is None else arguments)
    _require_positive(options)
    shape = _shape(options.shape or resolve_model_config(config.model.path))
    return _plan(config, shape, _machine(options), options)


def _shape(model: Path) -> ModelShape:
    return ModelShape.read(model.parent if model.name == "config.json" else model)


def _require_positive(options: argparse.Namespace) -> None:
    for name in ("gpus", "nodes", "gpu_memory", "host_memory", "prompt_tokens", "response_tokens"):
        value = getattr(options, name)
        if value is not None and not 0 < value < math.inf:
            raise ConfigError(f"--{name.replace('_', '-')} = {value} must be above 0")


def _machine(options: argparse.Namespace) -> Machine:
    if options.gpus is None:
        machine = this_machine()
    else:
        machine = Machine.with_gpus(options.gpus, int(options.gpu_memory * 2**30))
    if options.host_memory:
        machine = replace(machine, host_bytes=int(options.host_memory * 2**30), host_used_bytes=0)
    return combine_machines([machine] * options.nodes)


def _plan(config: TrainConfig, shape: ModelShape, machine: Machine, options: argparse.Namespace) -> int:
    require_division(config, shape)
    resolved = with_update_settings(resolve(config, machine), shape)
    ledger = compute_ledger(resolved, shape)
    assert ledger.engine is not None  # of a training run
    print(f"{shape.parameters / 1e9:.2f} B parameters; {resolved.placement}")
    print(_table(ledger))
    print(describe_update(resolved.config.learner))
    print(f"cache: {ledger.engine.cache_tokens:,} tokens in each engine")
    seconds = _step_seconds(resolved.config, ledger, options) if machine.gpus else None
    if warning := crowded_memory(resolved, shape):
        print(f"warning: {warning}")
    if warning := config.algorithm.unpublished_aggregation:
        print(f"warning: {warning}")
    fits = not ledger.excess()
    if not fits:
        print(explain(ledger))
        print(advice(config, machine, shape))
    print(json.dumps(_summary(ledger) | {"fits": fits, "roofline_seconds": seconds}))
    return 0 if fits else 1


def _step_seconds(config: TrainConfig, ledger: Ledger, options: argparse.Namespace) -> float:
    """Print and return the estimated time of a step."""
    card = options.card or _known_card(ledger.placement.machine)
    prompt = options.prompt_tokens or config.data.max_prompt_tokens // 2
    response = options.response_tokens or config.rollout.max_response_tokens // 4
    seconds = step_seconds(config, ledger, CARDS[card], prompt=prompt, response=response)
    print(
        f"a step takes at least {seconds:.1f} s with prompts of {prompt} and responses of {response} tokens: "
        f"an unmeasured roofline estimate, from the data sheet of the {card}"
    )
    return seconds


def step_seconds(config: TrainConfig, ledger: Ledger, card: Card, *, prompt: int, response: int) -> float:
    """Estimate the time of a step by the roofline model: rollout and update at the peak rates of a card.

    Offloading, weight transfer and the network are left out. No measurement has confirmed the estimate.

    Args:
        config: Configuration of the run.
        ledger: Memory of the run.
        card: Peak rates of the GPUs.
        prompt: Mean tokens of a prompt.
        response: Mean tokens of a response.
    """
    engine, options = ledger.engine, local_engine_options(config)
    assert engine is not None  # of a training run
    assert options is not None
    learner, algorithm, parameters = config.learner, config.algorithm, ledger.learner.shape.parameters
    episodes = config.rollout.prompts_per_step * config.rollout.samples_per_prompt
    per_engine = -(-episodes // ledger.placement.replicas)
    batch = max(1, min(per_engine, options.max_sequences, engine.cache_tokens // (prompt + response)))
    read = engine.weights + batch * (prompt + response) * engine.token_bytes
    token = 2 * parameters / (options.tensor_parallel * card.flops)
    rollout = per_engine * prompt * token + per_engine * response * max(read / card.memory / batch, token)
    # Six operations a parameter for forward and backward, two more for each further forward.
    passes = 8 if learner.gradient_checkpointing else 6
    trained = (passes * algorithm.epochs + 2 * (algorithm.needs_old_logprobs + algorithm.needs_reference)) * parameters
    if algorithm.needs_critic:
        trained += (passes * config.critic.epochs + 2) * ledger.learner.critic_shape.trunk_parameters
    update = episodes * (prompt + response) * trained / (ledger.placement.ranks * card.flops)
    return float(rollout + update if ledger.placement.colocated else max(rollout, update))


def _known_card(machine: Machine) -> str:
    return next((word for word in CARDS if word in machine.gpus[0].model), "H100")


def _table(ledger: Ledger) -> str:
    """Format a column for each GPU and one for all hosts. With several nodes, equal GPUs share a column."""
    placement = ledger.placement
    gpus = range(len(placement.machine.gpus))
    used = {gpu: tuple(sum(stage.on_gpu(gpu, placement).values()) for stage in ledger.stages) for gpu in gpus}
    columns = [[gpu] for gpu in gpus]
    if placement.machine.nodes:
        columns = [[gpu for gpu in gpus if used[gpu] == sizes] for sizes in dict.fromkeys(used.values())]
    titles = [f"GPU{'s' * (len(column) > 1)} {format_ranges(column)}" for column in columns]
    titles.append("hosts" if placement.machine.nodes else "host")
    lines = [f"{'':12}" + "".join(f"{title:>11}" for title in titles)]
    for number, stage in enumerate(ledger.stages):
        cells = [gib(size) for size in [*(used[column[0]][number] for column in columns), sum(stage.host.values())]]
        lines.append(f"{stage.name:12}" + "".join(f"{cell:>11}" for cell in cells))
    return "\n".join(lines)


def _summary(ledger: Ledger) -> dict[str, Any]:
    gpus = range(len(ledger.placement.machine.gpus))
    stages = {
        stage.name: {
            "gpus": [sum(stage.on_gpu(gpu, ledger.placement).values()) for gpu in gpus],
            **{side: {name: size for name, size in getattr(stage, side).items() if size} for side in _SIDES},
        }
        for stage in ledger.stages
    }
    cache_tokens = None if ledger.engine is None else ledger.engine.cache_tokens
    return {"parameters": ledger.learner.shape.parameters, "cache_tokens": cache_tokens, "stages": stages}


if __name__ == "__main__":
    sys.exit(main())
