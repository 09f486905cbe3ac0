"""Memory of one learner rank, on its GPU or on cores, by DeepSpeed's ZeRO stage."""

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import chain

from torl.components.engine.memory import Bytes
from torl.components.hub import resolve_model_config
from torl.components.hub.shape import ModelShape
from torl.run.config import LearningConfig, reference_model
from torl.run.placement.states import ADAM_BYTES, BUCKET_ELEMENTS, FLOAT_BYTES, States, page_locked_bytes

_CONTEXT = 1_900_000_000  # CUDA, NCCL and kernels in one process: 1.7 GB measured on an H200, before the first update
_PROCESS = 700_000_000  # torch, transformers and DeepSpeed in one process, on cores
_LIVE_PARAMETERS = 1_000_000_000  # DeepSpeed's default number of gathered parameters under ZeRO-3
_GROUP_ELEMENTS = 1_000_000_000  # DeepSpeed's default size of the parts in which ZeRO-3 takes an optimizer step
_LOGITS_COPIES = 3
_EXPORTED_FILE = 2_000_000_000  # as in `torl.learner.exporting`


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
        return 2 if self.config.learner.dtype == "bfloat16" else FLOAT_BYTES

    @property
    def models(self) -> tuple[States, ...]:
        """States of the policy and, if there is one, of the critic, whose weights are all trained."""
        trained, frozen, compact = self.shape.parameters, 0, 0
        if (lora := self.config.model.adapters) is not None:
            trained, frozen = self.shape.adapter_parameters(lora.rank, lora.target_modules), trained
            if self.itemsize == FLOAT_BYTES and self.config.learner.zero_stage < 3 and self.shape.dtype == "bfloat16":
                compact = self.shape.adapted_parameters(lora.target_modules)
        policy = self._states(trained, frozen, compact)
        if not self.config.algorithm.needs_critic:
            return (policy,)
        shape = self.critic_shape
        return policy, self._states(shape.trunk_parameters + shape.hidden + 1)

    @property
    def critic_shape(self) -> ModelShape:
        """Shape of the model whose trunk the critic has."""
        path = self.config.critic.path
        return self.shape if path is None else _shape(path)

    def _states(self, trained: int, frozen: int = 0, compact: int = 0) -> States:
        # On cores, pages of a buffer that are never written take no memory.
        bucket = min(BUCKET_ELEMENTS, trained) if self.on_cores else BUCKET_ELEMENTS
        return States(trained, self.config.learner.zero_stage, self.itemsize, self.ranks, frozen, compact, bucket)

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
        return sum(-(-model.parameters // self.ranks) for model in self.models) * (FLOAT_BYTES + ADAM_BYTES)

    @property
    def exported(self) -> int:
        """Bytes of the weights that rank 0 collects in CPU memory for a file of an export."""
        return min(_EXPORTED_FILE, self.shape.parameters * self.itemsize)

    def parameters(self) -> Bytes:
        """Return the bytes that a forward pass needs on the GPU between two rows."""
        learner = self.config.learner
        weights = 0 if learner.offloads_parameters else sum(model.weights for model in self.models)
        return {"parameters": weights, "reference": self._reference()}

    def optimizer(self) -> Bytes:
        """Return the additional bytes of the optimizer between two steps."""
        if self.config.learner.offloads_optimizer:
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
        layer = shape.activation_bytes(size, fused=self._has_fused_kernels)
        saved = shape.hidden * size if learner.gradient_checkpointing else layer
        one_layer = layer + 2 * size * (shape.intermediate + shape.hidden)
        logits = min(learner.max_stored_logits, self.max_row_tokens * shape.vocabulary)
        head_gradient = (
            0 if self.config.model.adapters is not None else shape.embedding_parameters * (FLOAT_BYTES + size)
        )
        head = head_gradient + self.max_row_tokens * 2 * shape.hidden * size
        gathered = min(shape.parameters, _LIVE_PARAMETERS + shape.embedding_parameters) * size if stage == 3 else 0
        gradients = 0 if learner.offloads_optimizer or stage == 3 else sum(model.gradients for model in self.models)
        return {
            "gradients": gradients,
            "activations": self.max_row_tokens * (shape.layers * saved + one_layer),
            "head": logits * FLOAT_BYTES * _LOGITS_COPIES + head,
            "gathered": gathered,
            "reduced": max(model.reduced for model in self.models),
        }

    def step(self) -> Bytes:
        """Return the additional bytes of an optimizer step: summed gradients, and flat copies.

        ZeRO-3 copies the gradients of one part after another. Stages 1 and 2 sum into a flat buffer, in float32, if the
        weights have another precision.
        """
        if self.config.learner.offloads_optimizer:
            return {}
        gradients = max(model.gradients for model in self.models)
        if self.config.learner.zero_stage == 3:
            return {"gradients": min(gradients, _GROUP_ELEMENTS * FLOAT_BYTES)}
        copies = 2 if self.config.learner.zero_stage in (1, 2) and self.itemsize == FLOAT_BYTES else 1
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
        part = _GROUP_ELEMENTS * FLOAT_BYTES if self.config.learner.zero_stage == 3 else max(size, 1)
        return size // part * page_locked_bytes(part) + page_locked_bytes(size % part)

    def _tensors(self, ranks: int) -> int:
        """Count the page-locked memory of the model's tensors, each sharded across ranks and in a separate buffer."""
        return sum(page_locked_bytes(-(-size // ranks) * self.itemsize) for size in self.shape.tensors)

    @property
    def _has_fused_kernels(self) -> bool:
        """Whether Liger's kernels compute norms and gated layers, as `model.kernels` chooses on this installation."""
        kernels = self.config.model.kernels
        is_chosen = kernels == "liger" or (kernels == "auto" and find_spec("liger_kernel") is not None)
        return is_chosen and not self.on_cores

    def gathering(self) -> Bytes:
        """Return the additional bytes while parameters are sent, saved or exported, one at a time."""
        return {"gathered": self.shape.embedding_parameters * self.itemsize * (self.config.learner.zero_stage == 3)}

    def _reference(self) -> int:
        """Count the bytes of the reference model: complete, or in shards, which are offloaded if devices are shared."""
        learner = self.config.learner
        if reference_model(self.config.algorithm, self.config.model) is None:
            return 0
        path = self.config.algorithm.kl.path
        parameters = self.shape.parameters if path is None else _shape(path).parameters
        if learner.zero_stage < 3:
            return parameters * self.itemsize
        offloaded = learner.offloads_parameters or learner.offloads_while_sampling
        return 0 if offloaded else -(-parameters // self.ranks) * self.itemsize


@cache
def _shape(model: str) -> ModelShape:
    return ModelShape.read(resolve_model_config(model))
