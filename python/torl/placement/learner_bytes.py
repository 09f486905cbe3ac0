"""What one rank of the learner holds on its GPU, by DeepSpeed's ZeRO stage."""

from dataclasses import dataclass

from torl.config import TrainConfig
from torl.placement.shape import ModelShape

Bytes = dict[str, int]
"""Bytes by what they are for."""

_CONTEXT = 1_500_000_000  # of CUDA and NCCL in one process
_BUCKET_ELEMENTS = 500_000_000  # DeepSpeed's default size of a bucket of gradients
_LIVE_PARAMETERS = 1_000_000_000  # and how many gathered ones ZeRO-3 keeps at once
_FLOAT = 4
_ADAM = 2 * _FLOAT
_LOGITS_COPIES = 3


@dataclass(frozen=True, slots=True)
class States:
    """What one trained model takes on each of `ranks`, as counted in DeepSpeed 0.19.

    The sum of parameters, master copy, gradients and Adam's state is 18 bytes a parameter in bfloat16, divided by the
    ranks as the stage says.
    """

    parameters: int
    """That are trained."""
    stage: int
    itemsize: int
    ranks: int
    frozen_parameters: int = 0
    """That are not, beside adapters."""

    def _divided(self, from_stage: int, parameters: int | None = None) -> int:
        count = self.parameters if parameters is None else parameters
        return -(-count // self.ranks) if self.stage >= from_stage else count

    @property
    def frozen(self) -> int:
        """Weights that have no optimizer, and stay where they are: DeepSpeed moves its optimizer's."""
        return self._divided(3, self.frozen_parameters) * self.itemsize

    @property
    def weights(self) -> int:
        """The parameters in the precision of forward and backward."""
        return self._divided(3) * self.itemsize

    @property
    def master(self) -> int:
        """The float32 copy that is updated. Without ZeRO float32 parameters are their own."""
        return 0 if self.stage == 0 and self.itemsize == _FLOAT else self._divided(1) * _FLOAT

    @property
    def adam(self) -> int:
        """Both moments, from the first step on."""
        return self._divided(1) * _ADAM

    @property
    def gradients(self) -> int:
        """Summed in float32 from stage 1 on; before an optimizer step and, at stage 3, always."""
        return self._divided(2) * _FLOAT if self.stage > 0 else self.parameters * self.itemsize

    @property
    def bucket(self) -> int:
        """The buffer that gradients are reduced in, which stage 3 never lets go of."""
        return _BUCKET_ELEMENTS * self.itemsize if self.stage == 3 else 0


@dataclass(frozen=True, slots=True)
class LearnerBytes:
    """The learner of a run, per rank."""

    config: TrainConfig
    shape: ModelShape
    ranks: int

    @property
    def itemsize(self) -> int:
        """Bytes of a parameter in forward and backward."""
        return 2 if self.config.learner.dtype == "bfloat16" else _FLOAT

    @property
    def models(self) -> tuple[States, ...]:
        """The policy, and the critic where there is one."""
        sizes = [self.shape.parameters]
        if self.config.algorithm.needs_critic:
            sizes.append(self.shape.trunk_parameters + self.shape.hidden + 1)
        stage, lora = self.config.learner.zero_stage, self.config.model.adapters
        if lora is None:
            return tuple(States(size, stage, self.itemsize, self.ranks) for size in sizes)
        adapters = self.shape.adapter_parameters(lora.rank, lora.target_modules)
        return tuple(States(adapters, stage, self.itemsize, self.ranks, size) for size in sizes)

    @property
    def max_row_tokens(self) -> int:
        """Tokens of a row on one rank: as configured, but at least its part of the longest sample."""
        configured = self.config.learner.max_row_tokens
        return self.longest_sample if configured == "auto" else max(configured, self.longest_sample)

    @property
    def longest_sample(self) -> int:
        """Tokens of the longest sample that one rank has."""
        longest = self.config.longest_prompt + self.config.rollout.max_response_tokens
        return -(-longest // self.config.learner.sequence_parallel)

    @property
    def written(self) -> int:
        """What one rank copies in CPU memory for a checkpoint: its share of masters and moments."""
        return sum(-(-model.parameters // self.ranks) for model in self.models) * (_FLOAT + _ADAM)

    @property
    def exported(self) -> int:
        """The model that rank 0 collects in CPU memory, to write it."""
        return self.shape.parameters * self.itemsize

    def parameters(self) -> Bytes:
        """What a forward needs on the GPU between two rows."""
        learner = self.config.learner
        weights = 0 if learner.offload_parameters else sum(model.weights for model in self.models)
        return {"parameters": weights, "reference": self._reference()}

    def optimizer(self) -> Bytes:
        """What an optimizer step needs besides, between two steps."""
        if self.config.learner.offload_optimizer:
            return {}
        lasting = self.config.learner.zero_stage == 3
        return {
            "master": sum(model.master for model in self.models),
            "Adam": sum(model.adam for model in self.models),
            "gradients": sum(model.gradients for model in self.models) if lasting else 0,
        }

    def always(self) -> Bytes:
        """What is there even while the learner is away."""
        return {
            "context": _CONTEXT,
            "buckets": sum(model.bucket for model in self.models),
            "frozen weights": sum(model.frozen for model in self.models),
        }

    def backward(self) -> Bytes:
        """What is there besides in the middle of a row."""
        learner, shape, size = self.config.learner, self.shape, self.itemsize
        stage = learner.zero_stage
        held = shape.hidden * size if learner.gradient_checkpointing else shape.activation_bytes(size)
        one_layer = shape.activation_bytes(size) + 2 * size * (shape.intermediate + shape.hidden)
        logits = min(learner.max_stored_logits, self.max_row_tokens * shape.vocabulary)
        head_gradient = 0 if self.config.model.adapters is not None else shape.embedding_parameters * (_FLOAT + size)
        head = head_gradient + self.max_row_tokens * 2 * shape.hidden * size
        gathered = min(shape.parameters, _LIVE_PARAMETERS + shape.embedding_parameters) * size if stage == 3 else 0
        gradients = 0 if learner.offload_optimizer or stage == 3 else sum(model.gradients for model in self.models)
        return {
            "gradients": gradients,
            "activations": self.max_row_tokens * (shape.layers * held + one_layer),
            "head": logits * _FLOAT * _LOGITS_COPIES + head,
            "gathered": gathered,
            "reduced": 2 * _BUCKET_ELEMENTS * size if stage in (1, 2) else 0,
        }

    def step(self) -> Bytes:
        """What is there besides in the optimizer step: the summed gradients, and at stages 1 and 2 their flat copy."""
        if self.config.learner.offload_optimizer or self.config.learner.zero_stage == 3:
            return {}
        copies = 2 if self.config.learner.zero_stage in (1, 2) else 1
        return {"gradients": copies * max(model.gradients for model in self.models)}

    def gathering(self) -> Bytes:
        """What is there besides while parameters are sent, saved or exported, one at a time."""
        return {"gathered": self.shape.embedding_parameters * self.itemsize * (self.config.learner.zero_stage == 3)}

    def _reference(self) -> int:
        """The policy that the run began with: whole, or in shards that lie in CPU memory where devices are shared."""
        learner = self.config.learner
        if not self.config.algorithm.needs_reference or self.config.model.adapters is not None:
            return 0  # with its adapters off a model is its own reference
        if learner.zero_stage < 3:
            return self.shape.parameters * self.itemsize
        elsewhere = learner.offload_parameters or learner.offload_while_sampling
        return 0 if elsewhere else -(-self.shape.parameters // self.ranks) * self.itemsize
