"""The sections of learning: selection, algorithm, learner, critic and their devices."""

from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from torl.base.options import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Precision,
    Section,
    default_choice,
    named_by_key,
)
from torl.components.algorithms.masks import MASK
from torl.components.algorithms.requirements import Requirements, requirements_of
from torl.components.algorithms.selection import GROUP_FILTER, MEMBER_FILTER, accuracy_outside
from torl.components.weights.rendezvous import TransportName
from torl.run.config.choices import (
    AggregationChoice,
    CorrectionChoice,
    EstimatorChoice,
    GroupFilterChoice,
    ImitationChoice,
    KlEstimatorChoice,
    MaskChoice,
    MemberFilterChoice,
    PolicyLossChoice,
    TeacherPromptChoice,
)
from torl.run.config.schedule import BY_STEP

_WITHOUT_TOKEN_REWARDS = ("distillation", "gdpo")
DEFAULT_ROW_TOKENS = 4096
"""`learner.max_row_tokens = "auto"` on a CPU, and for models whose memory use is unknown."""


class SelectionConfig(Section):
    """Selection of the trajectories that a step learns from; metrics count the others."""

    members: Annotated[dict[str, MemberFilterChoice], named_by_key(MEMBER_FILTER)] = Field(default={})
    """Member filters by name: which members of each group are kept, before groups are dropped. The others enter neither
    the loss nor the statistics of the group. A filter without a name is named by its key."""
    groups: Annotated[dict[str, GroupFilterChoice], named_by_key(GROUP_FILTER)] = Field(default={})
    """Group filters by name: which groups are dropped. A filter without a name is named by its key: zero_variance
    drops groups whose rewards are all equal, accuracy_outside groups that are too easy or too hard, undecided groups
    that the grader failed on, few_complete groups with few complete responses."""
    max_rounds: PositiveInt = 1
    """Maximum number of rounds of a step. Above 1, a step plays more prompts until `rollout.prompts_per_step` groups
    are kept (DAPO's dynamic sampling). After the last round, it continues with fewer groups and logs a warning."""
    mask: Annotated[dict[str, MaskChoice], named_by_key(MASK)] = Field(default={})
    """Masks by name: which trajectories carry no loss. A mask without a name is named by its key."""
    mask_after_advantages: bool = False
    """Include masked trajectories when whitening advantages (ZeroTIR's `--use_adv_mask_after`)."""

    @model_validator(mode="after")
    def _selects_something(self) -> Self:
        for name, each in self.groups.items():
            low, high = each.options.model_dump()["range"] if each.target is accuracy_outside else (0.0, 1.0)
            if not low < min(high, 1) or high <= 0:
                raise ValueError(f"groups.{name}: range must be two fractions between 0 and 1, the lower first")
        if self.dynamic_sampling and not self.groups:
            raise ValueError(
                f"max_rounds = {self.max_rounds} requires a filter in groups, such as zero_variance = {{}}; without "
                "one no group is dropped"
            )
        return self

    @property
    def dynamic_sampling(self) -> bool:
        """Whether a step plays more prompts in place of dropped groups."""
        return self.max_rounds > 1


class KlConfig(Section):
    """The reference model, and the KL penalty against it."""

    coefficient: Annotated[NonNegativeFloat, BY_STEP] = 0.0
    """KL coefficient. 0 disables the term; a reference model is loaded only if something else requires it."""
    estimator: KlEstimatorChoice = default_choice("k3")
    """KL estimator per token. As a loss, k1 has no gradient on average; use it for the reward."""
    target: Literal["loss", "reward"] = "loss"
    """Target of the KL penalty: a term of the loss, or a penalty on the reward of each token."""
    reference: str | None = None
    """Reference model: a directory or a name on the Hub, of a teacher with the policy's vocabulary; or
    "current_policy", the policy itself before each update, which requires `prompt`. Unset uses the initial policy."""
    prompt: TeacherPromptChoice | None = None
    """Other prompt of the reference model, which sees the same response after it: package.module:function. Unset uses
    the prompt of the policy, and so does a response that would be longer with the other one than the longest sample:
    the longest prompt of training or evaluation with `rollout.max_response_tokens`."""

    @property
    def current_policy(self) -> bool:
        """Whether the reference model is the policy itself."""
        return self.reference == "current_policy"

    @property
    def path(self) -> str | None:
        """The location of a separate reference model; None for the initial policy and the current one."""
        return None if self.current_policy else self.reference

    @model_validator(mode="after")
    def _differs_from_policy(self) -> Self:
        if self.current_policy and self.prompt is None:
            raise ValueError(
                "reference = 'current_policy' requires prompt: after the same prompt, the policy equals itself"
            )
        return self


class UpdateConfig(Section):
    """Optimizer steps in a training step, of the policy or the critic."""

    epochs: PositiveInt = 1
    """Number of passes over the trajectories of a step."""
    mini_batches: PositiveInt = 1
    """Number of equal mini-batches per epoch, one optimizer step each."""

    @property
    def optimizer_steps(self) -> int:
        """The number of optimizer steps in a training step."""
        return self.epochs * self.mini_batches


class AlgorithmConfig(UpdateConfig):
    """The learning algorithm, from rewards to the loss."""

    estimator: EstimatorChoice = default_choice("grpo")
    """Advantage estimator; ppo also trains a critic (section `critic`)."""
    normalize_rewards: bool = False
    """Normalize the rewards of a step to mean 0 and standard deviation 1, before the advantages."""
    normalize_advantages: bool = False
    """Whiten advantages over all sampled tokens of a step. The reinforce_plus_plus estimators always do."""
    policy_loss: PolicyLossChoice = default_choice("clipped")
    """Policy loss per token: PPO's, GSPO's (one ratio per sequence), CISPO's, or the plain policy gradient."""
    aggregation: AggregationChoice = default_choice("token")
    """Loss aggregation: the mean over all tokens, the mean over trajectories of their token means, or the token sum
    divided by a fixed length."""
    importance_correction: CorrectionChoice | None = None
    """Importance correction of the loss for the gap between trainer and engine: truncated, or masked by token or
    sequence. Unset applies none."""
    kl: KlConfig = Field(default_factory=KlConfig)
    """The KL penalty against the reference model."""
    entropy_bonus: Annotated[NonNegativeFloat, BY_STEP] = 0.0
    """Entropy coefficient: the weight of the entropy bonus in the loss."""
    imitation: ImitationChoice | None = None
    """Cross-entropy of single tokens in addition to the policy loss: "observations" (ECHO), or the sampled tokens of
    "correct_responses". Unset imitates none."""
    _keeps_reference: bool = PrivateAttr(default=False)

    @property
    def keeps_reference(self) -> bool:
        """Whether a mask of the run needs the initial policy as a reference model, even without a KL term."""
        return self._keeps_reference

    @model_validator(mode="after")
    def _estimator_fits_kl(self) -> Self:
        name, kl = self.estimator.name, self.kl
        if name == "distillation" and kl.path is None and kl.prompt is None:
            raise ValueError(
                f"estimator {name!r} requires kl.reference or kl.prompt: without them the teacher is the initial "
                "policy, and all advantages are 0"
            )
        if self.penalizes_rewards and name in _WITHOUT_TOKEN_REWARDS:
            raise ValueError(
                f"estimator {name!r} does not count the KL penalty of kl.target = 'reward': set kl.coefficient = 0, or "
                "kl.target = 'loss'"
            )
        return self

    @property
    def requirements(self) -> Requirements:
        """The requirements of the components."""
        components = requirements_of(self.estimator.target) | requirements_of(self.policy_loss.target)
        return components | requirements_of(self.kl.estimator.target) if self.kl.coefficient > 0 else components

    @property
    def unpublished_aggregation(self) -> str | None:
        """A warning if the estimator or the loss is published with other aggregations than the one in use.

        An aggregation set by a preset counts, too: the preset does not know the loss that replaces its own.
        """
        choices = [
            (each.name, requirements_of(each.target).aggregations) for each in (self.estimator, self.policy_loss)
        ]
        wrong = [(name, wanted) for name, wanted in choices if wanted and self.aggregation.name not in wanted]
        if not wrong:
            return None
        published = [f"{name} is published with {' or '.join(map(repr, wanted))}" for name, wanted in wrong]
        return f"algorithm.aggregation is {self.aggregation.name!r}, but {', and '.join(published)}"

    @property
    def needs_critic(self) -> bool:
        """Whether the estimator requires a critic."""
        return self.requirements.critic

    @property
    def min_group_size(self) -> int:
        """The minimum number of trajectories per prompt that the estimator requires."""
        return self.requirements.min_group_size

    @property
    def needs_old_logprobs(self) -> bool:
        """Whether the trainer computes log-probabilities before its first update."""
        return self.optimizer_steps > 1 or self.penalizes_rewards or self.requirements.old_logprobs

    @property
    def needs_reference(self) -> bool:
        """Whether a KL term, a component of the algorithm or a mask requires a reference model."""
        return self.kl.coefficient > 0 or self.keeps_reference or self.requirements.reference

    @property
    def penalizes_rewards(self) -> bool:
        """Whether the KL penalty is part of the reward."""
        return self.kl.coefficient > 0 and self.kl.target == "reward"

    @property
    def learns_without_advantage(self) -> bool:
        """Whether a trajectory has a gradient even if all its advantages are zero."""
        has_kl_term = self.kl.coefficient > 0 and self.kl.target == "loss"
        return self.entropy_bonus > 0 or has_kl_term or self._loss_has_all_tokens

    @property
    def _loss_has_all_tokens(self) -> bool:
        """Whether the policy loss has a term for tokens without an advantage, which may depend on an option."""
        declared = requirements_of(self.policy_loss.target).all_tokens
        return getattr(self.policy_loss.options, declared) > 0 if isinstance(declared, str) else declared


DecayRate = Annotated[float, Field(gt=0, lt=1)]
"""A decay rate of AdamW: 1 never forgets, and torch refuses it."""


class LearnerConfig(Section):
    """The DeepSpeed learner."""

    ranks: PositiveInt | None = None
    """Number of learner processes. Unset starts one per GPU of the learner, and one on a CPU."""
    cpu_threads: PositiveInt | None = None
    """Number of compute threads per rank. Unset divides the cores by the ranks."""
    sequence_parallel: PositiveInt = 1
    """Number of ranks that share each row, for long samples (Ulysses). Must divide the ranks and the model's heads."""
    zero_stage: Literal[0, 1, 2, 3] = 2
    """ZeRO stage: shards nothing (0), the optimizer state (1), gradients as well (2), or parameters as well (3) across
    ranks."""
    dtype: Precision = "bfloat16"
    """Precision of the forward and backward pass."""
    learning_rate: PositiveFloat = 1e-6
    """Peak learning rate."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning rate schedule after the warmup: constant, or decayed to zero at the last step."""
    warmup_steps: NonNegativeInt = 0
    """Number of optimizer steps of linear warmup."""
    betas: tuple[DecayRate, DecayRate] = (0.9, 0.999)
    """AdamW's decay rates."""
    weight_decay: NonNegativeFloat = 0.01
    """AdamW's weight decay."""
    gradient_clip: PositiveFloat = 1.0
    """Maximum global gradient norm."""
    max_row_tokens: PositiveInt | Literal["auto"] = "auto"
    """Maximum number of tokens in a packed row, the unit of the forward and backward pass; at least the longest sample.
    "auto" fits it to the memory of the GPUs, up to 32,768; on a CPU and for unknown models it is 4,096."""
    max_stored_logits: PositiveInt = 1 << 27
    """Maximum number of logits kept per row for the backward pass; the others are recomputed. Lower values save memory
    and cost time."""
    gradient_checkpointing: bool | Literal["auto"] = "auto"
    """Recompute activations in the backward pass: less memory, a third more compute. "auto" does so if the memory of
    the GPUs requires it or is unknown, on a CPU, and at ZeRO-3 across nodes."""
    offload: Literal["none", "while_sampling", "optimizer", "parameters", "all"] | None = None
    """Parts in CPU memory: the weights and the optimizer state while the engine samples ("while_sampling"), or, during
    the update as well, the "optimizer" state (ZeRO-Offload, not at stage 0), the "parameters" (ZeRO-3 only) or both
    ("all"). Unset is "while_sampling" on shared GPUs from stage 2 on, else "none"."""
    weight_transfer: Literal["auto"] | TransportName = "auto"
    """Transport of new weights to the engine: shared_memory, cuda_ipc (shared GPUs), nccl (separate GPUs) or gloo.
    "auto" chooses."""
    verify_weights: bool = False
    """Compare checksums of the weights on both sides of every transfer."""
    max_logprob_gap: PositiveFloat | None = None
    """Maximum mean |trainer logprob - engine logprob| of the current policy's tokens, in nats. Above it, trainer and
    engine hold different weights, and the run stops. Unset allows five times the gap of the run's first step, or 2e-4
    in float32 (2.5e-3 on GPUs), 0.02 in bfloat16 and 0.06 for a quantized engine if that is more."""
    timeout_seconds: PositiveFloat = 1800.0
    """Timeout of a command to a rank, in seconds, after which the run stops. Each computed row restarts it. Engines
    wait as long for new weights."""

    @property
    def resolved_row_tokens(self) -> int:
        """`max_row_tokens`, or the default if it is "auto"."""
        return DEFAULT_ROW_TOKENS if self.max_row_tokens == "auto" else self.max_row_tokens

    @model_validator(mode="after")
    def _ranks_share_rows(self) -> Self:
        if self.ranks is not None and self.ranks % self.sequence_parallel:
            raise ValueError(f"sequence_parallel = {self.sequence_parallel} does not divide ranks = {self.ranks}")
        return self

    @model_validator(mode="after")
    def _offload_fits_stage(self) -> Self:
        stages = {"while_sampling": (2, 3), "optimizer": (1, 2, 3), "parameters": (3,), "all": (3,)}
        if self.offload in stages and self.zero_stage not in (able := stages[self.offload]):
            raise ValueError(f"offload = {self.offload!r} requires zero_stage = {' or '.join(map(str, able))}")
        return self

    @property
    def offloads_while_sampling(self) -> bool:
        """Whether the learner moves while the engine samples: DeepSpeed can only if all of it is on the GPU before."""
        return self.offload == "while_sampling"

    @property
    def offloads_optimizer(self) -> bool:
        """Whether the optimizer's state stays in CPU memory."""
        return self.offload in ("optimizer", "all")

    @property
    def offloads_parameters(self) -> bool:
        """Whether the parameters stay in CPU memory."""
        return self.offload in ("parameters", "all")


class CriticConfig(UpdateConfig):
    """Settings of the critic, for estimators that need one. All other settings are those of `learner`."""

    path: str | None = None
    """Model whose trunk initializes the critic: a directory, or a name on the Hub. Its vocabulary must be the policy's.
    Unset uses the policy's model."""
    learning_rate: PositiveFloat = 5e-6
    """Peak learning rate."""
    warmup_steps: NonNegativeInt = 0
    """Number of optimizer steps of linear warmup."""
    value_clip: NonNegativeFloat = 0.2
    """Value clip range: maximum distance of new values from old ones before the squared error is clipped. 0 disables
    clipping."""
    pretrain_steps: NonNegativeInt = 0
    """Number of steps at the start of a run that update the critic only."""


class PlacementConfig(Section):
    """The devices of the learner and the engines: GPUs, or cores on a machine without them.

    Learner and engines on the same devices are *colocated* and take turns; on separate devices they are *split* and
    work at the same time. `docs/gpus.md` explains the defaults.
    """

    gpus: Literal["all"] | PositiveInt | tuple[NonNegativeInt, ...] = "all"
    """GPUs of the run: all visible ones, a number of them, or a list of indices."""
    learner: tuple[NonNegativeInt, ...] | None = None
    """Indices of the learner's devices: GPUs, or cores on a machine without GPUs. Unset derives them."""
    engine: tuple[NonNegativeInt, ...] | None = None
    """Indices of the engines' devices: either the learner's, or none of these. Unset derives them."""
    check_memory: bool = True
    """Refuse to start a run that needs more memory than its GPUs or the host have, according to `torl plan`."""

    @model_validator(mode="after")
    def _same_or_apart(self) -> Self:
        for name in ("gpus", "learner", "engine"):
            devices = getattr(self, name)
            if isinstance(devices, tuple) and (not devices or len(set(devices)) < len(devices)):
                raise ValueError(f"{name} must name at least one device, and each only once")
        if self.learner is None or self.engine is None:
            return self
        both = set(self.learner) & set(self.engine)
        if both and set(self.learner) != set(self.engine):
            raise ValueError(
                f"learner and engine share only {sorted(both)}: use the same devices for both "
                "(colocated), or separate devices (split)"
            )
        return self
