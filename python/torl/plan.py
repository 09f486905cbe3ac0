"""Say before a run what it needs: bytes of every stage on every GPU and in the host.

python -m torl.plan CONFIG [--gpus 8] [--nodes 8] [--memory 79.6] [--card H100]
                           [--model DIRECTORY-OR-CONFIG.JSON] [--section.field value ...]

The last line is JSON. The exit status is 0 if the run fits, and 1 if it does not.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torl.config import TrainConfig
from torl.config.command_line import parse_command_line
from torl.errors import ConfigError, TorlError
from torl.hub import resolve_model_config
from torl.placement.checks import advice, explain, gib, require_division
from torl.placement.formatting import format_ranges
from torl.placement.ledger import Ledger, ledger
from torl.placement.machine import Machine, combine_machines, this_machine
from torl.placement.resolve import resolve
from torl.placement.roofline import CARDS, step_seconds
from torl.placement.rows import with_row_tokens
from torl.placement.shape import ModelShape

_PROGRAM = "python -m torl.plan"
_SIDES = ("learner", "engine", "host")  # the bytes of a stage: on one GPU of each side, and in CPU memory


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog=_PROGRAM, description=__doc__, allow_abbrev=False, add_help=False)
    parser.add_argument("--gpus", type=int, help="plan for so many GPUs instead of those of this machine")
    parser.add_argument("--nodes", type=int, default=1, help="such machines, as nodes of a cluster (cluster.kind)")
    parser.add_argument("--memory", type=float, default=79.6, help="GiB of each of them; an H100 of 80 GB has 79.6")
    parser.add_argument("--host-memory", type=float, help="GiB of CPU memory; that of this machine when unset")
    parser.add_argument(
        "--card", choices=sorted(CARDS), help="whose data sheet bounds a step; that of this machine when unset"
    )
    parser.add_argument("--model", type=Path, help="directory or config.json of the model, instead of model.path")
    parser.add_argument("--prompt", type=int, help="tokens of a prompt on average; half of the limit when unset")
    parser.add_argument("--response", type=int, help="tokens of a response on average; a quarter of the limit")
    own, rest = parser.parse_known_args(sys.argv[1:] if arguments is None else arguments)
    try:
        config = parse_command_line(TrainConfig, _PROGRAM, str(__doc__), rest)
        shape = _shape(own.model or resolve_model_config(config.model.path))
        return _plan(config, shape, _machine(own), own)
    except TorlError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _shape(model: Path) -> ModelShape:
    return ModelShape.read(model.parent if model.name == "config.json" else model)


def _machine(own: argparse.Namespace) -> Machine:
    here = this_machine() if own.gpus is None else None
    if here is not None and not here.gpus:
        raise ConfigError("this machine has no GPU: say for how many the plan is (--gpus 8 --memory 79.6)")
    machine = here or Machine.with_gpus(own.gpus, int(own.memory * 2**30))
    host = int(own.host_memory * 2**30) if own.host_memory else machine.host_bytes
    if own.nodes < 1:
        raise ConfigError("a plan is for at least one node: --nodes 8")
    return combine_machines([Machine(machine.gpus, machine.cores, host, machine.driver)] * own.nodes)


def _plan(config: TrainConfig, shape: ModelShape, machine: Machine, own: argparse.Namespace) -> int:
    require_division(config, shape)
    settled = with_row_tokens(resolve(config, machine), shape)
    book = ledger(settled, shape)
    print(f"{shape.parameters / 1e9:.2f} B parameters; {settled.placement}")
    print(_table(book))
    print(f"rows of {book.learner.max_row_tokens:,} tokens")
    print(f"cache: {book.engine.cache_tokens:,} tokens in each engine")
    card = own.card or _known_card(machine)
    prompt = own.prompt or config.data.max_prompt_tokens // 2
    response = own.response or config.rollout.max_response_tokens // 4
    seconds = step_seconds(book, CARDS[card], prompt=prompt, response=response)
    print(
        f"a step takes at least {seconds:.1f} s with prompts of {prompt} and responses of {response} tokens: "
        f"an unmeasured roofline estimate, from the data sheet of the {card}"
    )
    fits = not book.excess()
    if not fits:
        print(explain(book))
        print(advice(config, machine, shape))
    print(json.dumps(_summary(book) | {"fits": fits, "roofline_seconds": seconds}))
    return 0 if fits else 1


def _known_card(machine: Machine) -> str:
    return next((word for word in CARDS if word in machine.gpus[0].model), "H100")


def _table(book: Ledger) -> str:
    """A column for each GPU, or for those that hold the same, where there are several nodes; and one for all hosts."""
    placement = book.placement
    gpus = range(len(placement.machine.gpus))
    held = {gpu: tuple(sum(stage.on_gpu(gpu, placement).values()) for stage in book.stages) for gpu in gpus}
    columns = [[gpu] for gpu in gpus]
    if placement.machine.nodes:
        columns = [[gpu for gpu in gpus if held[gpu] == sizes] for sizes in dict.fromkeys(held.values())]
    titles = [f"GPU{'s' * (len(column) > 1)} {format_ranges(column)}" for column in columns]
    titles.append("hosts" if placement.machine.nodes else "host")
    lines = [f"{'':12}" + "".join(f"{title:>11}" for title in titles)]
    for number, stage in enumerate(book.stages):
        cells = [gib(size) for size in [*(held[column[0]][number] for column in columns), sum(stage.host.values())]]
        lines.append(f"{stage.name:12}" + "".join(f"{cell:>11}" for cell in cells))
    return "\n".join(lines)


def _summary(book: Ledger) -> dict[str, Any]:
    gpus = range(len(book.placement.machine.gpus))
    stages = {
        stage.name: {
            "gpus": [sum(stage.on_gpu(gpu, book.placement).values()) for gpu in gpus],
            **{side: {name: size for name, size in getattr(stage, side).items() if size} for side in _SIDES},
        }
        for stage in book.stages
    }
    return {"parameters": book.learner.shape.parameters, "cache_tokens": book.engine.cache_tokens, "stages": stages}


if __name__ == "__main__":
    sys.exit(main())
