"""One rank of the learner: a process that owns a part of the DeepSpeed engine and does what the controller asks.

    python -m torl.learner.worker --rank R --world-size N --connection FD --parent PID
    python -m torl.learner.worker --rank R --world-size N --controller HOST:PORT --parent PID

Standard output and error go wherever the controller directed them: a log file of this rank.
"""

import argparse
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import chain
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from torl.errors import LearnerError
from torl.learner.batch import PackedRow
from torl.learner.checkpoint.model_export import export_model
from torl.learner.checkpoint.names import CRITIC_TAG, POLICY_TAG
from torl.learner.checkpoint.restore import restore_rank
from torl.learner.checkpoint.snapshot import take_snapshot
from torl.learner.checkpoint.writer import CheckpointWriter
from torl.learner.deepspeed_engine import (
    learning_rate_at,
    load_causal_lm,
    make_policy,
    start_engine,
    start_reference,
)
from torl.learner.handshake import KEY_VARIABLE, ControllerAddress, connect_to_controller
from torl.learner.messages import (
    Annotation,
    ChannelRequest,
    LearnerMemoryPart,
    RankReply,
    RankRequest,
    RankSetup,
    ShardWritten,
)
from torl.learner.model.critic import Critic
from torl.learner.model.lora import add_adapters, disabled_adapters, export_adapter
from torl.learner.model.policy import Policy
from torl.learner.model.sequence_parallel import SequenceParallel
from torl.learner.offload import StateMover
from torl.learner.optimizer_shards import OptimizerShards
from torl.learner.process_group import exit_rank, join_process_group, leave_process_group, select_gloo_interface
from torl.learner.publishing import WeightPublisher
from torl.learner.update import evaluate_rows, policy_logprobs, run_critic, update_critic, update_policy
from torl.learner.whole_weights import full_adapters, full_weights
from torl.runtime.processes.children import die_with_parent
from torl.runtime.processes.stacks import enable_stack_dumps
from torl.types import Float32Array
from torl.weights.rendezvous import Rendezvous, TransferSummary


class Rank:
    """The commands of a rank; each is called on all ranks together. Methods' names are the controller's commands."""

    def __init__(self, start: RankSetup, rank: int, world_size: int, report: Callable[[ShardWritten], None]) -> None:
        """Join the process group and build the engines; `report` tells the controller what was written.

        Raises:
            DataError: a model cannot be read.
        """
        setup = self.setup = start.learner
        self.rank = rank
        self.world_size = world_size
        self.updates = {POLICY_TAG: 0, CRITIC_TAG: 0}  # optimizer steps taken: the place in the learning-rate schedule
        torch.set_num_threads(start.threads)
        random.seed(setup.seed + rank)
        np.random.seed(setup.seed + rank)
        torch.manual_seed(setup.seed + rank)
        join_process_group(start, rank, world_size)
        sharing = setup.learner.sequence_parallel
        parallel = SequenceParallel(sharing) if sharing > 1 else None
        causal_lm = add_adapters(load_causal_lm(setup.model, setup.learner), setup.model.adapters, setup.seed)
        policy = make_policy(causal_lm, setup.model, setup.learner, parallel)
        self.engine = start_engine(policy, setup.learner)
        self._engines = {POLICY_TAG: self.engine}
        if setup.algorithm.needs_critic:
            model = setup.model.model_copy(update={"path": setup.critic.path or setup.model.path})
            self._critic_learner = setup.learner.model_copy(
                update={"learning_rate": setup.critic.learning_rate, "warmup_steps": setup.critic.warmup_steps}
            )
            critic = Critic(load_causal_lm(model, self._critic_learner), parallel=parallel)
            self._engines[CRITIC_TAG] = start_engine(critic, self._critic_learner)
        self._shards = {tag: OptimizerShards(engine, rank, world_size) for tag, engine in self._engines.items()}
        self._state_movers = [StateMover(engine, self._shards[tag]) for tag, engine in self._engines.items()]
        self._away: set[LearnerMemoryPart] = set()
        self._writer = CheckpointWriter(rank, report)
        self._publisher = WeightPublisher(
            partial(full_weights, self.engine),
            setup.learner,
            rank=rank,
            world_size=world_size,
            cuda=self.engine.device.type == "cuda",
        )
        self._reference: Any = None
        if setup.algorithm.needs_reference and setup.model.adapters is None:
            self._reference = start_reference(setup.model, setup.learner, self.engine.device, parallel)

    def update_policy(self, rows: tuple[PackedRow, ...], sampled_tokens: int) -> dict[str, float]:
        """Gradients of this rank's rows and one optimizer step of all ranks. Metrics are equal on all ranks."""
        self._needs("optimizer", "parameters")
        setup = self.setup
        total = setup.total_steps * setup.algorithm.optimizer_steps
        metrics = update_policy(
            self.engine,
            rows,
            sampled_tokens=sampled_tokens,
            temperature=setup.temperature,
            algorithm=setup.algorithm,
            learning_rate=learning_rate_at(self.updates[POLICY_TAG], total, setup.learner),
            sharing=setup.learner.sequence_parallel,
        )
        self.updates[POLICY_TAG] += 1
        return metrics

    def update_critic(self, rows: tuple[PackedRow, ...], sampled_tokens: int) -> dict[str, float]:
        """The same for the critic."""
        self._needs("optimizer", "parameters")
        setup = self.setup
        total = setup.total_steps * setup.critic.optimizer_steps
        metrics = update_critic(
            self._engines[CRITIC_TAG],
            rows,
            sampled_tokens=sampled_tokens,
            clip=setup.critic.value_clip,
            learning_rate=learning_rate_at(self.updates[CRITIC_TAG], total, self._critic_learner),
            sharing=setup.learner.sequence_parallel,
        )
        self.updates[CRITIC_TAG] += 1
        return metrics

    def annotate(
        self, rows: tuple[PackedRow, ...], wanted: tuple[Annotation, ...]
    ) -> dict[Annotation, list[Float32Array]]:
        """What the policy, the reference policy and the critic say of the sampled tokens of this rank's rows."""
        self._needs("parameters")
        device, temperature = self.engine.device, self.setup.temperature
        annotations: dict[Annotation, list[Float32Array]] = {}
        for name in wanted:
            if name == "values":
                critic = self._engines[CRITIC_TAG]
                annotations[name] = evaluate_rows(critic, rows, device, partial(run_critic, critic))
            else:
                reference = name == "ref_logprobs"
                policy = self._reference if reference and self._reference is not None else self.engine
                with disabled_adapters(policy) if reference else nullcontext():
                    annotations[name] = evaluate_rows(
                        policy, rows, device, partial(policy_logprobs, policy, temperature)
                    )
        return annotations

    def open_channel(self, where: ChannelRequest) -> Rendezvous | None:
        """Rank 0 listens for engine workers and says where."""
        return self._publisher.open(where)

    def send_weights(self, rendezvous: Rendezvous, checksum: bool) -> TransferSummary | None:
        """Send the weights to the engine workers at `rendezvous`, each rank to its own."""
        self._needs("parameters")
        return self._publisher.send(rendezvous, checksum)

    def save_checkpoint(self, directory: Path) -> None:
        """Copy this rank's part of a checkpoint, wherever it is, and begin to write it into an existing directory."""
        self._writer.wait()
        self._writer.write(take_snapshot(self._shards, rank=self.rank, counters=self.updates), directory)

    def load_checkpoint(self, directory: Path) -> None:
        """Put everything back as it was when `directory` was written."""
        self._needs("optimizer", "parameters")
        self.updates = dict(restore_rank(self._shards, directory, rank=self.rank))

    def export(self, directory: Path) -> None:
        """Rank 0 writes the model in Hugging Face's format, adapters merged and alone; the others help to gather."""
        self._needs("parameters")
        if self.rank != 0:
            for _ in chain(full_weights(self.engine), full_adapters(self.engine)):
                pass
            return
        model = self.setup.model
        weights = {name: tensor.to("cpu", copy=True) for name, tensor in full_weights(self.engine)}
        export_model(weights, Path(model.path), directory)
        adapters = [(name, tensor.to("cpu", copy=True)) for name, tensor in full_adapters(self.engine)]
        if model.adapters is not None:
            export_adapter(adapters, model.adapters, model.path, directory / "adapter")

    def offload(self, part: LearnerMemoryPart) -> None:
        """Move a part of the learner to CPU memory, so that an engine on the same GPU has room."""
        if part in self._away:
            return
        for mover in self._movers():
            mover.offload_optimizer() if part == "optimizer" else mover.offload_parameters()
        if part == "parameters":
            self._move_reference(torch.device("cpu"))
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # what torch keeps for itself, nobody else can have
        self._away.add(part)

    def onload(self) -> None:
        """Move everything back."""
        if self._away:
            for mover in self._movers():
                mover.onload()
            self._move_reference(self.engine.device)
            self._away.clear()

    def _movers(self) -> list[StateMover]:
        if self.engine.zero_optimization_stage() < 2:
            raise LearnerError("a learner can leave the GPU at learner.zero_stage = 2 or 3 only")
        return self._state_movers

    def _needs(self, *parts: LearnerMemoryPart) -> None:
        if missing := self._away.intersection(parts):
            raise LearnerError(f"the learner's {' and '.join(sorted(missing))} must be brought back first: call onload")

    def _move_reference(self, device: torch.device) -> None:
        if isinstance(self._reference, Policy):  # in shards it stays in CPU memory
            self._reference.to(device)

    def close(self) -> None:
        """Leave the process group. Nothing else may be called afterwards."""
        self._writer.wait()
        self._publisher.close()
        for engine in self._engines.values():
            engine.destroy()
        leave_process_group()


def serve(connection: Connection, rank: int, world_size: int) -> int:
    """Answer the controller's requests until it says `shutdown` or goes away. Returns the exit status.

    The first message is the `RankSetup`. An error ends the rank: the other ranks may be waiting for it in the
    middle of a collective, and only the controller can end them.
    """
    lock = threading.Lock()  # the thread that writes checkpoints speaks as well

    def say(message: RankReply | ShardWritten) -> None:
        with lock:
            connection.send(message)

    try:
        worker = Rank(connection.recv(), rank, world_size, say)
        say(RankReply())
        while True:
            request: RankRequest = connection.recv()
            if request.command == "shutdown":
                worker.close()
                say(RankReply())
                return 0
            start = time.perf_counter()
            value: Any = getattr(worker, request.command)(**request.arguments)
            print(f"{request.command}: {time.perf_counter() - start:.3f} s", flush=True)
            say(RankReply(value))
    except (EOFError, ConnectionError):
        print("the controller has ended", file=sys.stderr, flush=True)
        return 1
    except BaseException as error:
        text = traceback.format_exc()
        print(text, file=sys.stderr, flush=True)
        say(RankReply(error=type(error).__name__, message=str(error), traceback=text))
        return 1


def main() -> NoReturn:
    """Entry point of a rank."""
    enable_stack_dumps()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--world-size", type=int)
    parser.add_argument("--connection", type=int, help="file descriptor of a socket to the controller")
    parser.add_argument("--controller", help="HOST:PORT of a controller on another machine")
    parser.add_argument("--parent", type=int, help="id of the process that has started this one")
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)  # a compute kernel would not notice a closed socket
    if arguments.controller is not None:
        host, _, port = arguments.controller.rpartition(":")
        controller = ControllerAddress(host, int(port), os.environ.pop(KEY_VARIABLE))
        select_gloo_interface(controller.host, controller.port)
        exit_rank(serve(connect_to_controller(controller, arguments.rank), arguments.rank, arguments.world_size))
    exit_rank(serve(Connection(arguments.connection), arguments.rank, arguments.world_size))


if __name__ == "__main__":
    main()
