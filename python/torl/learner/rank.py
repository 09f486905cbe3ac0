"""A rank of the learner: its part of the DeepSpeed engines, and the execution of the controller's requests."""

import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, assert_never

import numpy as np
import torch

from torl.base.errors import DivergedError, LearnerError
from torl.base.runtime.processes.resources import trim_heap
from torl.base.types import Float32Array
from torl.components.weights.rendezvous import Rendezvous, TransferSummary
from torl.learner.checkpoint.shards import CRITIC_TAG, POLICY_TAG
from torl.learner.checkpoint.snapshot import CheckpointWriter, restore_rank, take_snapshot
from torl.learner.deepspeed_engine import (
    learning_rate_at,
    load_causal_lm,
    make_policy,
    start_engine,
    start_reference,
)
from torl.learner.exporting import export_model
from torl.learner.messages import (
    Annotate,
    Annotation,
    Export,
    LearnerMemoryPart,
    LoadCheckpoint,
    Offload,
    Onload,
    OpenChannel,
    PolicyUpdate,
    RankRequest,
    RankSetup,
    RequireFinite,
    RowComputed,
    SaveCheckpoint,
    SendWeights,
    ShardWritten,
    ShutDown,
    SumWeights,
    UpdateCritic,
    UpdatePolicy,
)
from torl.learner.model.lora import add_adapters, compact_frozen_weights, disabled_adapters, export_adapter
from torl.learner.model.packing_check import require_separate_samples
from torl.learner.model.policy import Critic, Policy
from torl.learner.model.sequence_parallel import SequenceParallel
from torl.learner.objective import try_custom_functions
from torl.learner.offload import FrozenModelMover, StateMover
from torl.learner.optimizer_shards import OptimizerShards
from torl.learner.process_group import join_process_group, leave_process_group
from torl.learner.publishing import WeightPublisher, full_adapters, full_weights
from torl.learner.rows import PackedRow, TokenRecorder
from torl.learner.update import (
    evaluate_rows,
    has_finite_weights,
    policy_logprobs,
    policy_outputs,
    run_critic,
    update_critic,
    update_policy,
)
from torl.run.config import reference_model


class Rank:
    """The state and the commands of a rank. Each command runs on all ranks together."""

    def __init__(
        self, rank_setup: RankSetup, rank: int, world_size: int, report: Callable[[ShardWritten | RowComputed], None]
    ) -> None:
        """Join the process group and create the engines.

        Args:
            rank_setup: Setup, the same on all ranks.
            rank: Number of this rank.
            world_size: Number of ranks.
            report: Function that sends a report to the controller, from any thread.

        Raises:
            DataError: A model cannot be read or trained.
            ComponentError: A custom loss, importance correction or aggregation fails on a few tokens.
        """
        setup = self.setup = rank_setup.learner
        self.rank = rank
        self.world_size = world_size
        self.updates = {POLICY_TAG: 0, CRITIC_TAG: 0}
        """Optimizer steps taken, which determine the learning rate."""
        torch.set_num_threads(rank_setup.threads)
        random.seed(setup.seed + rank)
        np.random.seed(setup.seed + rank)
        torch.manual_seed(setup.seed + rank)
        try_custom_functions(setup.algorithm)
        device = join_process_group(rank_setup, rank, world_size)
        ranks_per_row = setup.learner.sequence_parallel
        parallel = SequenceParallel(ranks_per_row) if ranks_per_row > 1 else None
        causal_lm = load_causal_lm(setup.model, setup.learner, device)
        causal_lm = add_adapters(causal_lm, setup.model.adapters, setup.seed)
        policy = make_policy(causal_lm, setup.model, setup.learner, parallel)
        self.engine = start_engine(policy, setup.learner)
        if setup.learner.zero_stage < 3:
            compact_frozen_weights(policy)
        require_separate_samples(self.engine)
        self._engines = {POLICY_TAG: self.engine}
        if setup.algorithm.needs_critic:
            model = setup.model.model_copy(update={"path": setup.critic.path or setup.model.path})
            self._critic_learner = setup.learner.model_copy(
                update={"learning_rate": setup.critic.learning_rate, "warmup_steps": setup.critic.warmup_steps}
            )
            causal_lm = load_causal_lm(model, self._critic_learner, device, needs_head=False)
            critic = Critic(causal_lm, parallel=parallel)
            self._engines[CRITIC_TAG] = start_engine(critic, self._critic_learner)
        self._shards = {tag: OptimizerShards(engine, rank, world_size) for tag, engine in self._engines.items()}
        self._state_movers = [StateMover(engine, self._shards[tag]) for tag, engine in self._engines.items()]
        self._offloaded: set[LearnerMemoryPart] = set()
        self._report = report
        self._writer = CheckpointWriter(rank, report)
        self._publisher = WeightPublisher(
            partial(full_weights, self.engine),
            setup.learner,
            rank=rank,
            world_size=world_size,
            cuda=self.engine.device.type == "cuda",
        )
        self._reference: Any = None
        if (reference := reference_model(setup.algorithm, setup.model)) is not None:
            self._reference = start_reference(reference, setup.learner, device, parallel)
            require_separate_samples(self._reference)
        is_whole = isinstance(self._reference, Policy)  # a sharded reference model stays in CPU memory
        self._reference_mover = FrozenModelMover(self._reference) if is_whole else None
        self._empty_cache()

    @property
    def shares_prompts(self) -> bool:
        """Whether the samples of a row can share a prompt in all models."""
        models = [*self._engines.values(), *([] if self._reference is None else [self._reference])]
        return all(getattr(model, "module", model).shares_prompts for model in models)

    def execute(self, request: RankRequest) -> Any:
        """Run the command of a request and return its value."""
        match request:
            case UpdatePolicy(rows, sampled_tokens, step, recorded):
                return self.update_policy(rows, sampled_tokens, step, recorded)
            case UpdateCritic(rows, sampled_tokens, _):
                return self.update_critic(rows, sampled_tokens)
            case RequireFinite():
                return self.require_finite(request)
            case Annotate(rows, annotations, step):
                return self.annotate(rows, annotations, step)
            case OpenChannel():
                return self._publisher.open(request)
            case SendWeights(rendezvous, checksum):
                return self.send_weights(rendezvous, checksum)
            case SumWeights():
                return self._shards[POLICY_TAG].weight_sums()
            case SaveCheckpoint(directory):
                return self.save_checkpoint(directory)
            case LoadCheckpoint(directory):
                return self.load_checkpoint(directory)
            case Export(directory, stop_token_ids):
                return self.export(directory, stop_token_ids)
            case Offload(part):
                return self.offload(part)
            case Onload():
                return self.onload()
            case ShutDown():
                return self.close()
            case _:
                assert_never(request)

    def update_policy(
        self,
        rows: tuple[PackedRow, ...],
        sampled_tokens: int,
        step: int = 0,
        recorded: frozenset[int] = frozenset(),
    ) -> PolicyUpdate:
        """Compute the gradients of this rank's rows, take one optimizer step, and return its metrics."""
        self._require("optimizer", "parameters")
        setup = self.setup.at_step(step)
        total = setup.policy_steps * setup.algorithm.optimizer_steps
        recorder = TokenRecorder(recorded)
        metrics = update_policy(
            self.engine,
            rows,
            sampled_tokens=sampled_tokens,
            temperature=setup.temperature,
            algorithm=setup.algorithm,
            learning_rate=learning_rate_at(self.updates[POLICY_TAG], total, setup.learner),
            ranks_per_row=setup.learner.sequence_parallel,
            on_row=self._report_row,
            recorder=recorder,
        )
        self.updates[POLICY_TAG] += 1
        return PolicyUpdate(metrics, recorder.found)

    def update_critic(self, rows: tuple[PackedRow, ...], sampled_tokens: int) -> dict[str, float]:
        """Do the same for the critic."""
        self._require("optimizer", "parameters")
        setup = self.setup
        total = setup.total_steps * setup.critic.optimizer_steps
        metrics = update_critic(
            self._engines[CRITIC_TAG],
            rows,
            sampled_tokens=sampled_tokens,
            clip=setup.critic.value_clip or None,
            learning_rate=learning_rate_at(self.updates[CRITIC_TAG], total, self._critic_learner),
            ranks_per_row=setup.learner.sequence_parallel,
            on_row=self._report_row,
        )
        self.updates[CRITIC_TAG] += 1
        return metrics

    def require_finite(self, request: RequireFinite) -> None:
        """Raise `DivergedError` unless this rank's weights of a model and its outputs for a row are finite."""
        engine = self._engines[request.model]
        is_policy = request.model == POLICY_TAG
        compute = partial(policy_logprobs, engine, self.setup.temperature) if is_policy else partial(run_critic, engine)
        (outputs,) = evaluate_rows(engine, (request.row,), engine.device, compute, self._report_row)
        if np.isfinite(outputs).all() and has_finite_weights(engine.module):
            return
        section, settings = ("learner", self.setup.learner) if is_policy else ("critic", self.setup.critic)
        raise DivergedError(
            f"the {request.model} is not finite after step {request.step + 1} "
            f"({section}.learning_rate = {settings.learning_rate:g}); resume from the last checkpoint with a lower rate"
        )

    def annotate(
        self, rows: tuple[PackedRow, ...], annotations: tuple[Annotation, ...], step: int = 0
    ) -> dict[Annotation, list[Float32Array]]:
        """Compute log-probabilities or values of the sampled tokens of this rank's rows."""
        self._require("parameters")
        device, temperature = self.engine.device, self.setup.at_step(step).temperature
        computed: dict[Annotation, list[Float32Array]] = {}
        before_update = {"old_logprobs", "entropies", "collision_probs"}.intersection(annotations)
        if before_update:
            outputs = partial(
                policy_outputs,
                self.engine,
                temperature,
                "log" if "entropies" in before_update else "off",
                "collision_probs" in before_update,
            )
            found = evaluate_rows(self.engine, rows, device, outputs, self._report_row)
            columns = {"old_logprobs": 0, "entropies": 1, "collision_probs": 2}
            computed |= {name: [array[:, columns[name]] for array in found] for name in columns if name in annotations}
        for name in annotations:
            if name == "values":
                critic = self._engines[CRITIC_TAG]
                computed[name] = evaluate_rows(critic, rows, device, partial(run_critic, critic), self._report_row)
            elif name == "ref_logprobs":
                policy = self.engine if self._reference is None else self._reference
                with nullcontext() if self.setup.algorithm.kl.current_policy else disabled_adapters(policy):
                    logprobs = partial(policy_logprobs, policy, temperature)
                    computed[name] = evaluate_rows(policy, rows, device, logprobs, self._report_row)
        return computed

    def send_weights(self, rendezvous: Rendezvous, checksum: bool) -> TransferSummary | None:
        """Send the weights to this rank's engine workers."""
        self._require("parameters")
        trim_heap()  # the engine needs memory, too, and the update's is free
        return self._publisher.send(rendezvous, checksum)

    def save_checkpoint(self, directory: Path) -> None:
        """Copy this rank's state, offloaded or not, and start writing it into an existing directory."""
        self._writer.wait()
        self._writer.write(take_snapshot(self._shards, rank=self.rank, counters=self.updates), directory)

    def load_checkpoint(self, directory: Path) -> None:
        """Restore the state that was written to `directory`."""
        self._require("optimizer", "parameters")
        self.updates = dict(restore_rank(self._shards, directory, rank=self.rank))

    def export(self, directory: Path, stop_token_ids: Sequence[int] = ()) -> None:
        """Write the model in Hugging Face's format at rank 0, with adapters merged, and the adapters separately."""
        self._require("parameters")
        if self.rank != 0:
            for _ in chain(full_adapters(self.engine), full_weights(self.engine)):
                pass
            return
        model = self.setup.model
        adapters = [(name, tensor.to("cpu", copy=True)) for name, tensor in full_adapters(self.engine)]
        weights = ((name, tensor.to("cpu", copy=True)) for name, tensor in full_weights(self.engine))
        export_model(weights, Path(model.path), directory, stop_token_ids)
        if model.adapters is not None:
            export_adapter(adapters, model.adapters, model.path, directory / "adapter")

    def offload(self, part: LearnerMemoryPart) -> None:
        """Free a part of this rank's GPU memory for an engine."""
        if part in self._offloaded:
            return
        if part != "cache":
            for mover in self._movers():
                mover.offload_optimizer() if part == "optimizer" else mover.offload_parameters()
            if part == "parameters" and self._reference_mover is not None:
                self._reference_mover.offload()
            self._offloaded.add(part)
        self._empty_cache()

    def _report_row(self) -> None:
        """Report a computed row, which restarts the timeout of the command."""
        self._report(RowComputed())

    def _empty_cache(self) -> None:
        """Free the memory in torch's cache, which no other process can use."""
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def onload(self) -> None:
        """Move all offloaded parts back."""
        if self._offloaded:
            for mover in self._movers():
                mover.onload()
            if self._reference_mover is not None and "parameters" in self._offloaded:
                self._reference_mover.onload(self.engine.device)
            self._offloaded.clear()

    def _movers(self) -> list[StateMover]:
        if self.engine.zero_optimization_stage() < 2:
            raise LearnerError("a learner can leave the GPU at learner.zero_stage = 2 or 3 only")
        return self._state_movers

    def _require(self, *parts: LearnerMemoryPart) -> None:
        if missing := self._offloaded.intersection(parts):
            raise LearnerError(f"the learner's {' and '.join(sorted(missing))} must be brought back first: call onload")

    def close(self) -> None:
        """Leave the process group. No other method may be called afterwards."""
        self._writer.wait()
        self._publisher.close()
        for engine in self._engines.values():
            engine.destroy()
        leave_process_group()
