"""Memory of one learner rank, on its GPU or on cores, by DeepSpeed's ZeRO stage."""

from dataclasses import dataclass
from functools import cache
from itertools import chain

from torl.config import LearningConfig, reference_model
from torl.hub import resolve_model
from torl.placement.shape import ModelShape

Bytes = dict[str, int]
"""Bytes by purpose."""

BUCKET_ELEMENTS = 250_000_000
"""Number of gradients that are reduced together, in float32: 1 GB."""

_CONTEXT = 1_500_000_000  # CUDA and NCCL in one process
_PROCESS = 700_000_000  # torch, transformers and DeepSpeed in one process, on cores
_LIVE_PARAMETERS = 1_000_000_000  # DeepSpeed's default number of gathered parameters under ZeRO-3
_GROUP_ELEMENTS = 1_000_000_000  # DeepSpeed's default size of the parts in which ZeRO-3 takes an optimizer step
_FLOAT = 4
_ADAM = 2 * _FLOAT
_COMPACTED = 2  # bytes saved by a parameter in bfloat16 instead of float32
_LOGITS_COPIES = 3
_EXPORTED_FILE = 2_000_000_000  # as in `torl.learner.exporting`


def page_locked_bytes(size: int) -> int:
    """Return the memory of a page-locked buffer: torch's allocator rounds its size up to a power of two.

    The threshold of its option `pinned_max_round_threshold_mb` must not be used: above it torch 2.13 reuses a freed
    buffer for a larger one (`get_free_block` in ATen/core/CachingHostAllocator.h compares only the rounded sizes).
    """
    return 1 << (size - 1).bit_length() if size else 0


@dataclass(frozen=True, slots=True)
class States:
    """Bytes of one trained model on each rank, as counted in DeepSpeed 0.19.

    The sum of parameters, master copy, gradients and Adam's state is 18 bytes a parameter in bfloat16, sharded across
    the ranks according to the stage.

    Attributes:
        parameters: Number of trained parameters.
        stage: ZeRO stage.
        itemsize: Bytes of a parameter in forward and backward.
        ranks: Number of ranks.
        frozen_parameters: Number of parameters that are not trained, with adapters.
        compact_parameters: Number of frozen float32 parameters that are stored in bfloat16
            (`torl.learner.model.frozen`).
    """

    parameters: int
    stage: int
    itemsize: int
    ranks: int
    frozen_parameters: int = 0
    compact_parameters: int = 0

    def _divided(self, from_stage: int, parameters: int | None = None) -> int:
        count = self.parameters if parameters is None else parameters
        return -(-count // self.ranks) if self.stage >= from_stage else count

    @property
    def frozen(self) -> int:
        """Weights without an optimizer that are never offloaded: those below stage 3."""
        return 0 if self.stage == 3 else self.frozen_parameters * self.itemsize - self.compact_parameters * _COMPACTED

    @property
    def trained_weights(self) -> int:
        """Trained parameters in the precision of forward and backward."""
        return self._divided(3) * self.itemsize

    @property
    def weights(self) -> int:
        """Parameters in the precision of forward and backward. At stage 3, with the shards of frozen ones."""
        shards = self._divided(3, self.frozen_parameters) if self.stage == 3 else 0
        return self.trained_weights + shards * self.itemsize

    @property
    def master(self) -> int:
        """Float32 master copy. Without ZeRO, float32 parameters need no copy."""
        return 0 if self.stage == 0 and self.itemsize == _FLOAT else self._divided(1) * _FLOAT

    @property
    def adam(self) -> int:
        """Both moments of Adam, from the first step on."""
        return self._divided(1) * _ADAM

    @property
    def gradients(self) -> int:
        """Gradients, summed in float32 from stage 1 on. Present before an optimizer step and, at stage 3, always."""
        return self._divided(2) * _FLOAT if self.stage > 0 else self.parameters * self.itemsize

    @property
    def bucket(self) -> int:
        """Buffer in which gradients are reduced, in float32. Stage 3 never frees it."""
        return BUCKET_ELEMENTS * _FLOAT if self.stage == 3 else 0

    @property
    def reduced(self) -> int:
        """Two buckets at stages 1 and 2, with two copies of one. Copies at other stages need less than the head."""
        if self.stage not in (1, 2):
            return 0
        buckets = 2 * BUCKET_ELEMENTS * (_FLOAT if self.stage == 1 else self.itemsize)
        return buckets + min(BUCKET_ELEMENTS, self.parameters) * (self.itemsize + _FLOAT)


@dataclass(frozen=True, slots=True)
class LearnerBytes:
    """Bytes of the learner on each rank.

    Attributes:
        config: Configuration of the run.
        shape: Shape of the model.
        ranks: Number of ranks.
        on_cores: Whether the ranks compute on cores.
    """

    config: LearningConfig
    shape: ModelShape
    ranks: int
    on_cores: bool = False

    @property
    def itemsize(self) -> int:
        """Bytes of a parameter in forward and backward."""
        return 2 if self.config.learner.dtype == "bfloat16" else _FLOAT

    @property
    def models(self) -> tuple[States, ...]:
        """States of the policy and, if there is one, of the critic, whose weights are all trained."""
        trained, frozen, compact = self.shape.parameters, 0, 0
        stage = self.config.learner.zero_stage
        if (lora := self.config.model.adapters) is not None:
            trained, frozen = self.shape.adapter_parameters(lora.rank, lora.target_modules), trained
            if self.itemsize == _FLOAT and stage < 3 and self.shape.dtype == "bfloat16":
                compact = self.shape.adapted_parameters(lora.target_modules)
        policy = States(trained, stage, self.itemsize, self.ranks, frozen, compact)
        if not self.config.algorithm.needs_critic:
            return (policy,)
        critic = self.shape.trunk_parameters + self.shape.hidden + 1
        return policy, States(critic, stage, self.itemsize, self.ranks)

    @property
    def max_row_tokens(self) -> int:
        """Maximum number of tokens of a row on one rank: as configured, but at least its part of the longest sample."""
        configured = self.config.learner.max_row_tokens
        if configured == "auto":
            configured = self.config.learner.resolved_row_tokens if self.on_cores else 0
        return max(configured, self.longest_sample)

    @property
    def longest_sample(self) -> int:
        """Number of tokens of the longest sample on one rank."""
        return -(-self.config.longest_sample // self.config.learner.sequence_parallel)

    @property
    def written(self) -> int:
        """Bytes that one rank copies to CPU memory for a checkpoint: its shard of master copy and moments."""
        return sum(-(-model.parameters // self.ranks) for model in self.models) * (_FLOAT + _ADAM)

    @property
    def exported(self) -> int:
        """Bytes of the weights that rank 0 collects in CPU memory for a file of an export."""
        return min(_EXPORTED_FILE, self.shape.parameters * self.itemsize)

    def parameters(self) -> Bytes:
        """Return the bytes that a forward pass needs on the GPU between two rows."""
        learner = self.config.learner
        weights = 0 if learner.offload_parameters else sum(model.weights for model in self.models)
        return {"parameters": weights, "reference": self._reference()}

    def optimizer(self) -> Bytes:
        """Return the additional bytes of the optimizer between two steps."""
        if self.config.learner.offload_optimizer:
            return {}
        permanent = self.config.learner.zero_stage == 3
        return {
            "master": sum(model.master for model in self.models),
            "Adam": sum(model.adam for model in self.models),
            "gradients": sum(model.gradients for model in self.models) if permanent else 0,
        }

    def always(self) -> Bytes:
        """Return the bytes that remain on the GPU while the learner is offloaded."""
        return {
            "context": _PROCESS if self.on_cores else _CONTEXT,
            "buckets": sum(model.bucket for model in self.models),
            "frozen weights": sum(model.frozen for model in self.models),
        }

    def backward(self) -> Bytes:
        """Return the additional bytes during the backward pass of a row."""
        learner, shape, size = self.config.learner, self.shape, self.itemsize
        stage = learner.zero_stage
        saved = shape.hidden * size if learner.gradient_checkpointing else shape.activation_bytes(size)
        one_layer = shape.activation_bytes(size) + 2 * size * (shape.intermediate + shape.hidden)
        logits = min(learner.max_stored_logits, self.max_row_tokens * shape.vocabulary)
        head_gradient = 0 if self.config.model.adapters is not None else shape.embedding_parameters * (_FLOAT + size)
        head = head_gradient + self.max_row_tokens * 2 * shape.hidden * size
        gathered = min(shape.parameters, _LIVE_PARAMETERS + shape.embedding_parameters) * size if stage == 3 else 0
        gradients = 0 if learner.offload_optimizer or stage == 3 else sum(model.gradients for model in self.models)
        return {
            "gradients": gradients,
            "activations": self.max_row_tokens * (shape.layers * saved + one_layer),
            "head": logits * _FLOAT * _LOGITS_COPIES + head,
            "gathered": gathered,
            "reduced": max(model.reduced for model in self.models),
        }

    def step(self) -> Bytes:
        """Return the additional bytes of an optimizer step: summed gradients, and flat copies.

        ZeRO-3 copies the gradients of one part after another. Stages 1 and 2 sum into a flat buffer, in float32, if the
        weights have another precision.
        """
        if self.config.learner.offload_optimizer:
            return {}
        gradients = max(model.gradients for model in self.models)
        if self.config.learner.zero_stage == 3:
            return {"gradients": min(gradients, _GROUP_ELEMENTS * _FLOAT)}
        copies = 2 if self.config.learner.zero_stage in (1, 2) and self.itemsize == _FLOAT else 1
        return {"gradients": copies * gradients}

    def page_locked(self) -> Bytes:
        """Return the CPU memory of a rank that is offloaded. It stays page-locked for the next time."""
        models = self.models
        frozen = sum(model.stage == 3 and model.frozen_parameters > 0 for model in models)
        return {
            "parameters": sum(page_locked_bytes(model.trained_weights) for model in models)
            + frozen * self._tensors(self.ranks),
            "master": sum(map(self._state, (model.master for model in models))),
            "Adam": 2 * sum(map(self._state, (model.adam // 2 for model in models))),
            "reference": self._tensors(1) if self._reference() else 0,
        }

    def page_locked_optimizer(self) -> int:
        """Return the CPU memory of a rank whose optimizer stays there: master copy, moments and gradients."""
        states = [(model.master, model.adam // 2, model.adam // 2, model.gradients) for model in self.models]
        return sum(map(self._state, chain.from_iterable(states)))

    def _state(self, size: int) -> int:
        """Return the page-locked memory of a state of `size` bytes, which ZeRO-3 divides into parts."""
        part = _GROUP_ELEMENTS * _FLOAT if self.config.learner.zero_stage == 3 else max(size, 1)
        return size // part * page_locked_bytes(part) + page_locked_bytes(size % part)

    def _tensors(self, ranks: int) -> int:
        """Count the page-locked memory of the model's tensors, each sharded across ranks and in a separate buffer."""
        return sum(page_locked_bytes(-(-size // ranks) * self.itemsize) for size in self.shape.tensors)

    def gathering(self) -> Bytes:
        """Return the additional bytes while parameters are sent, saved or exported, one at a time."""
        return {"gathered": self.shape.embedding_parameters * self.itemsize * (self.config.learner.zero_stage == 3)}

    def _reference(self) -> int:
        """Count the bytes of the reference model: complete, or in shards, which are offloaded if devices are shared."""
        learner = self.config.learner
        if reference_model(self.config.algorithm, self.config.model) is None:
            return 0
        path = self.config.algorithm.kl.path
        parameters = self.shape.parameters if path is None else _parameters(path)
        if learner.zero_stage < 3:
            return parameters * self.itemsize
        offloaded = learner.offload_parameters or learner.offload_while_sampling
        return 0 if offloaded else -(-parameters // self.ranks) * self.itemsize


@cache
def _parameters(model: str) -> int:
    return ModelShape.read(resolve_model(model)).parameters
