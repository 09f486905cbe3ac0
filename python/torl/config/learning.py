"""What is learned from, and how: selection, algorithm, learner, critic."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from torl.algorithms.losses import KlEstimator
from torl.config.choices import (
    AggregationChoice,
    CorrectionChoice,
    EstimatorChoice,
    MaskChoice,
    PolicyLossChoice,
    default_choice,
)
from torl.options import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Precision,
    Section,
)
from torl.weights.rendezvous import TransportName

DEFAULT_ROW_TOKENS = 4096
"""`learner.max_row_tokens = "auto"` on a CPU, and of a model whose bytes torl cannot count."""


def _named_by_key(masks: Any) -> Any:
    if not isinstance(masks, dict):
        return masks
    return {key: {"name": key, **mask} if isinstance(mask, dict) else mask for key, mask in masks.items()}


class SelectionConfig(Section):
    """Which trajectories of a step are learned from; metrics count those that are not."""

    drop_zero_variance_groups: bool = False
    """Leave groups whose rewards are all equal out of the batch, so that the loss is a mean over the others."""
    accuracy_range: tuple[float, float] | None = None
    """Keep only groups of which a share between these two is rewarded, both excluded; all when unset."""
    drop_undecided_above: PositiveFraction | None = None
    """Leave groups out of which the grader could not decide a larger share (ZeroTIR: 0.4); none when unset."""
    dynamic_sampling: bool = False
    """Play further prompts until `rollout.prompts_per_step` groups are kept (DAPO)."""
    max_rounds: PositiveInt = 10
    """Rounds of dynamic sampling; after the last a step continues with the groups it has, and says so."""
    mask: Annotated[dict[str, MaskChoice], BeforeValidator(_named_by_key)] = Field(default={})
    """Masks by name: which trajectories carry no loss. A mask without a name is named by its key."""
    mask_after_advantages: bool = False
    """Whiten advantages before masking, so that masked trajectories enter the statistics (ZeroTIR)."""

    @model_validator(mode="after")
    def _selects_something(self) -> Self:
        if self.accuracy_range is not None and not self.accuracy_range[0] < self.accuracy_range[1]:
            raise ValueError("accuracy_range must be two shares, the lower first")
        if self.dynamic_sampling and not self.drop_zero_variance_groups and self.accuracy_range is None:
            raise ValueError(
                "dynamic_sampling needs drop_zero_variance_groups or accuracy_range: without them all are kept"
            )
        return self


class KlConfig(Section):
    """The divergence from the policy that the run began with."""

    coefficient: NonNegativeFloat = 0.0
    """Its weight; 0 makes no reference policy."""
    estimator: KlEstimator = "k3"
    """Estimate on a token; k1 has no gradient on average as a loss, and belongs in the reward."""
    target: Literal["loss", "reward"] = "loss"
    """Whether it is a term of the loss or is taken from the reward of each token."""


class AlgorithmConfig(Section):
    """From rewards to the loss."""

    estimator: EstimatorChoice = default_choice("grpo")
    """Advantage estimator; ppo trains a critic beside the policy (section `critic`)."""
    normalize_rewards: bool = False
    """Bring the rewards of a step to mean 0 and standard deviation 1 before anything is made of them."""
    normalize_advantages: bool = False
    """Whiten advantages over all sampled tokens of a step; the reinforce_plus_plus estimators always do."""
    policy_loss: PolicyLossChoice = default_choice("clipped")
    """Loss of a token: PPO's, GSPO's (one ratio for a sequence), CISPO's, or the plain policy gradient."""
    aggregation: AggregationChoice = default_choice("token")
    """Mean over all tokens, over trajectories of their token means, or sum over tokens by a fixed length."""
    importance_correction: CorrectionChoice | None = None
    """Correction of the loss for the gap between trainer and engine: truncated, or masked by token or sequence."""
    kl: KlConfig = Field(default_factory=KlConfig)
    """The divergence from the policy that the run began with."""
    keep_reference: bool = False
    """Keep the initial policy as a reference even without a KL term. A mask that needs it turns this on."""
    entropy_bonus: NonNegativeFloat = 0.0
    """Weight of the policy's entropy, which is taken from the loss."""
    epochs: PositiveInt = 1
    """Passes over the trajectories of a step."""
    mini_batches: PositiveInt = 1
    """Optimizer steps in one pass, each on as large a part of the trajectories."""

    @property
    def optimizer_steps(self) -> int:
        """Optimizer steps that are made with the trajectories of one step."""
        return self.epochs * self.mini_batches

    @property
    def needs_critic(self) -> bool:
        """Whether the estimator asks for a critic's values."""
        return bool(getattr(self.estimator.target, "needs_critic", False))

    @property
    def min_group_size(self) -> int:
        """Trajectories of one prompt that the estimator asks for."""
        return int(getattr(self.estimator.target, "min_group_size", 1))

    @property
    def needs_old_logprobs(self) -> bool:
        """Whether the trainer's own logprobs are wanted before its first update."""
        return self.optimizer_steps > 1 or self.penalizes_rewards

    @property
    def needs_reference(self) -> bool:
        """Whether a KL term or a mask needs a reference policy."""
        return self.kl.coefficient > 0 or self.keep_reference

    @property
    def penalizes_rewards(self) -> bool:
        """Whether the KL term is part of the reward."""
        return self.kl.coefficient > 0 and self.kl.target == "reward"

    @property
    def learns_without_advantage(self) -> bool:
        """Whether a trajectory whose advantages are all zero has a gradient still."""
        return self.entropy_bonus > 0 or (self.kl.coefficient > 0 and self.kl.target == "loss")


class LearnerConfig(Section):
    """The DeepSpeed learner."""

    ranks: PositiveInt | None = None
    """Learner processes: one for each GPU of the learner when unset; on a CPU any number, and one when unset."""
    cpu_threads: PositiveInt | None = None
    """Compute threads of each rank; the cores divided by the ranks when unset."""
    sequence_parallel: PositiveInt = 1
    """Ranks that share each row, for samples too long for one (Ulysses); divides the ranks and the model's heads."""
    zero_stage: Literal[0, 1, 2, 3] = 2
    """ZeRO stage: what the ranks share among them (optimizer, gradients, parameters)."""
    dtype: Precision = "bfloat16"
    """Precision of forward and backward."""
    learning_rate: PositiveFloat = 1e-6
    """Peak learning rate."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning rate after the warm-up: constant, or decayed to zero at the last step."""
    warmup_steps: NonNegativeInt = 0
    """Optimizer steps of linear warm-up."""
    betas: tuple[PositiveFraction, PositiveFraction] = (0.9, 0.999)
    """AdamW's decay rates."""
    weight_decay: NonNegativeFloat = 0.01
    """AdamW's weight decay."""
    gradient_clip: PositiveFloat = 1.0
    """Largest global gradient norm."""
    max_row_tokens: PositiveInt | Literal["auto"] = "auto"
    """Tokens of one packed row, the unit of forward and backward; raised to the longest sample. "auto": as many as the
    memory of the GPUs has room for, at most 32,768; 4,096 on a CPU, and where that cannot be counted."""
    max_stored_logits: PositiveInt = 1 << 27
    """Logits of a row that the head keeps for its backward pass, in the precision of the model; it computes the others
    twice. Fewer save memory and cost time."""
    gradient_checkpointing: bool = True
    """Recompute activations in the backward pass: less memory, a third more compute."""
    offload_while_sampling: bool | None = None
    """Move weights and optimizer state to CPU memory while the engine samples; where they share GPUs when unset."""
    offload_optimizer: bool = False
    """Keep the optimizer's state in CPU memory during the update as well (ZeRO-Offload)."""
    offload_parameters: bool = False
    """Keep the parameters in CPU memory during the update as well (ZeRO-3 only)."""
    weight_transfer: Literal["auto"] | TransportName = "auto"
    """Way of new weights to the engine: shared_memory, cuda_ipc (on shared GPUs), nccl (on others), gloo; or chosen."""
    verify_weights: bool = False
    """Compare checksums of the weights on both sides of every transfer to the engine."""
    max_logprob_gap: PositiveFloat | None = 1.0
    """Largest mean |trainer's logprob - engine's| of a step's sampled tokens, in nats, above which the run stops: the
    two then hold different models."""
    timeout_seconds: PositiveFloat = 1800.0
    """Longest wait for any answer of a rank before the run stops."""

    @property
    def resolved_row_tokens(self) -> int:
        """`max_row_tokens`, or what "auto" is where nothing counts memory."""
        return DEFAULT_ROW_TOKENS if self.max_row_tokens == "auto" else self.max_row_tokens

    @model_validator(mode="after")
    def _offload_fits_stage(self) -> Self:
        if self.offload_parameters and self.zero_stage != 3:
            raise ValueError("offload_parameters needs zero_stage = 3")
        if self.offload_while_sampling and self.zero_stage < 2:
            raise ValueError("offload_while_sampling needs zero_stage = 2 or 3")
        if self.offload_while_sampling and (self.offload_optimizer or self.offload_parameters):
            # DeepSpeed moves a whole learner only from the GPU, and what is always in CPU memory need not move.
            raise ValueError("offload_while_sampling cannot go with offload_optimizer or offload_parameters")
        return self


class CriticConfig(Section):
    """The critic of an estimator that asks for one; what is not here it has in common with the learner."""

    path: str | None = None
    """Directory of the model whose trunk it starts from; the policy's own when unset."""
    learning_rate: PositiveFloat = 5e-6
    """Peak learning rate."""
    warmup_steps: NonNegativeInt = 0
    """Optimizer steps of linear warm-up."""
    epochs: PositiveInt = 1
    """Passes over the trajectories of a step."""
    mini_batches: PositiveInt = 1
    """Optimizer steps in one pass, each on as large a part of the trajectories."""
    value_clip: PositiveFloat | None = 0.2
    """How far values may move from what they were before the step at no cost; unset for the plain squared error."""
    pretrain_steps: NonNegativeInt = 0
    """Steps at the start of a run in which the critic learns alone and the policy stays as it is."""

    @property
    def optimizer_steps(self) -> int:
        """Optimizer steps that are made with the trajectories of one step."""
        return self.epochs * self.mini_batches
