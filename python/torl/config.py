"""The configuration of a run: one tree of frozen, validated models, a docstring for every field.

Sizes carry their unit in the name. Paths beginning with `torl:` name files inside the package.
`torl.settings` reads the tree from TOML and the command line.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from torl.types import FormatName, InterpreterState

PositiveInt = Annotated[int, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]
Precision = Literal["float32", "bfloat16"]
TemplateName = Literal["torl", "zerotir", "orz", "none"]


class Section(BaseModel):
    """Base of every section: immutable, no unknown keys, field descriptions taken from the docstrings below it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class RunConfig(Section):
    """What this run is called, where it writes, how long it goes on."""

    directory: Path
    """Directory that holds everything the run writes."""
    seed: NonNegativeInt = 0
    """Seed from which every other seed of the run is derived."""
    steps: PositiveInt
    """Number of optimizer steps."""
    note: str = ""
    """What a reader of the report should know of this run."""
    resume: bool = False
    """Go on from the last checkpoint in `directory`; without it a directory that holds a run is refused."""


class ModelConfig(Section):
    """The policy to train."""

    path: str
    """Directory of a Hugging Face causal language model with its tokenizer."""
    attention: Literal["sdpa", "flash_attention_2", "eager"] = "sdpa"
    """Attention implementation of the learner; rows are packed, so it must keep samples apart by position ids."""


class DataConfig(Section):
    """The problems."""

    train: str
    """Problem file to train on (.jsonl, .json or .parquet)."""
    evaluation: dict[str, str] = {}
    """Problem files to evaluate on, by the name they get in the metrics."""
    template: TemplateName = "torl"
    """Prompt template."""
    max_prompt_tokens: PositiveInt = 400
    """Problems whose prompt is longer are dropped and counted."""


class EvaluateDataConfig(BaseModel):
    """Of the data section, what says how a problem becomes a prompt."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    template: TemplateName = "torl"
    max_prompt_tokens: PositiveInt = 400


class RolloutConfig(Section):
    """How episodes are played."""

    prompts_per_step: PositiveInt = 128
    """Prompts in one training step."""
    samples_per_prompt: PositiveInt = 16
    """Trajectories for each prompt: the size of a group."""
    max_response_tokens: PositiveInt = 3072
    """Limit on the tokens of a response, sampled and observed together."""
    temperature: NonNegativeFloat = 1.0
    """Sampling temperature; 0 is greedy."""
    top_p: Share = 1.0
    """Nucleus sampling mass; the trainer's log-probabilities are exact only at 1."""
    format: FormatName = "torl"
    """Protocol of a tool call: "torl" runs the last block at ```output, "zerotir" each block when its fence closes."""
    max_tool_calls: NonNegativeInt = 1
    """Tool calls an episode may make (C, or ZeroTIR's N). After the last, all is text; 0 trains without the tool."""
    error_observation: Literal["last_line", "traceback", "tagged", "hidden"] = "last_line"
    """What the model sees of an exception: its last line, the traceback, the last line in <error> tags, or nothing."""
    end_at_void_turn: bool = False
    """End an episode whose turn asks for output with neither a code block nor a boxed answer in it (SimpleTIR)."""
    max_observation_characters: PositiveInt = 256
    """Format "torl": longer observations keep their head and tail, half of this each, with "..." between."""
    max_observation_tokens: PositiveInt = 256
    """Format "zerotir": an observation of more tokens, fences included, becomes a sentence that says so."""
    interpreter_state: InterpreterState = "fresh"
    """What a block finds of earlier ones: nothing (ToRL), the variables of all blocks of its episode, or those of the
    blocks that ran well, which are run again before it."""
    speculative_execution: bool = True
    """Run a code block as soon as it closes, before the model has asked for its output."""
    max_concurrent_episodes: PositiveInt = 1024
    """Episodes being sampled at once; those that wait for the interpreter are not counted."""
    max_staleness: NonNegativeInt = 0
    """Steps that are played ahead of the learner; 0 trains synchronously. With more, tokens are up to so many updates
    older than the policy that learns from them, which `algorithm.importance_correction` makes up for."""


class EngineConfig(Section):
    """The inference engine (vLLM)."""

    dtype: Precision = "bfloat16"
    """Precision of the engine's weights."""
    tensor_parallel: PositiveInt = 1
    """Devices that share one engine's weights."""
    data_parallel: PositiveInt = 1
    """Engines side by side, each with `tensor_parallel` devices of its own."""
    memory_share: Share = 0.85
    """Share of a GPU's memory the engine may use. Not used on a CPU."""
    cpu_cache_gib: PositiveInt = 1
    """Size of the KV cache on a CPU, in GiB. Not used on a GPU."""
    cpu_threads: PositiveInt | None = None
    """Compute threads of the engine on a CPU; all cores of the machine when unset."""
    max_sequences: PositiveInt = 1024
    """Sequences the engine batches at once."""
    enforce_eager: bool = False
    """Do not compile or capture graphs: slower steps, a faster start. Always so on a CPU."""
    sleep_while_learning: bool = False
    """Free the engine's GPU memory while the learner trains (engine and learner share the GPUs)."""
    live_turns: Literal["recompute", "keep", "drain"] = "recompute"
    """What becomes of turns being sampled when weights arrive: they go on after their prefix was computed anew, they go
    on with the old policy's keys and values (cheaper; log-probabilities are no longer exact), or they end first."""
    verify_weights: bool = False
    """Compare checksums of the weights on both sides of every transfer."""
    arguments: dict[str, Any] = {}
    """Any other of vLLM's engine arguments (fields of its `AsyncEngineArgs`), by name."""


class SandboxConfig(Section):
    """The interpreter that runs the model's code."""

    workers: PositiveInt | None = None
    """Worker processes; one for each core when unset."""
    cpu_seconds: PositiveFloat = 10.0
    """CPU time one run may use before it ends as a time-out."""
    wall_seconds: PositiveFloat = 60.0
    """Wall-clock deadline behind the CPU limit; its worker is killed and replaced."""
    memory_mib: PositiveInt = 512
    """Memory of one run, in MiB, the interpreter's own 174 MiB included."""
    output_kib: PositiveInt = 1024
    """Bytes of stdout and stderr together that one run may write, in KiB."""
    shared_mib: NonNegativeInt = 64
    """Outcomes that are remembered, in MiB, to answer equal runs without executing them again; 0 executes every run."""

    @model_validator(mode="after")
    def _deadlines_in_order(self) -> Self:
        if self.wall_seconds < self.cpu_seconds:
            raise ValueError("wall_seconds must not be shorter than cpu_seconds")
        return self


class RewardConfig(Section):
    """The outcome reward."""

    correct: float = 1.0
    """Reward of a correct final answer."""
    wrong: float = -1.0
    """Reward of a wrong or missing final answer."""
    require_format: bool = False
    """Reward a correct answer only in a response that ended by itself, with one boxed <answer> after </think>."""
    failed_code: float = 0.0
    """Added if the trajectory ran code and some of it failed (ToRL tried -0.5)."""
    overlong_buffer: NonNegativeInt = 0
    """Tokens before `rollout.max_response_tokens` in which a punishment of length grows from 0 (DAPO); 0 for none."""
    overlong_penalty: NonNegativeFloat = 1.0
    """That punishment at the limit."""
    timeout_seconds: PositiveFloat = 2.0
    """Time the grader may spend on one pair of answers."""
    workers: PositiveInt = 2
    """Grader processes."""


class AlgorithmConfig(Section):
    """From rewards to the loss."""

    estimator: Literal["grpo", "dr_grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "ppo"] = "grpo"
    """Advantage estimator; ppo trains a critic beside the policy (section `critic`)."""
    discount: Share = 1.0
    """Discount of rewards for each sampled token (gamma); of the reinforce_plus_plus estimators and ppo."""
    gae_lambda: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Lambda of generalised advantage estimation (ppo)."""
    normalize_rewards: bool = False
    """Bring the rewards of a step to mean 0 and standard deviation 1 before anything is made of them."""
    normalize_advantages: bool = False
    """Whiten advantages over all sampled tokens of a step; the reinforce_plus_plus estimators always do."""
    policy_loss: Literal["clipped", "gspo", "cispo", "reinforce"] = "clipped"
    """Loss of a token: PPO's, GSPO's (one ratio for a sequence), CISPO's, or the plain policy gradient."""
    aggregation: Literal["token", "sequence", "fixed"] = "token"
    """Mean over all tokens, over trajectories of their token means, or sum over tokens by `fixed_length`."""
    fixed_length: PositiveInt | None = None
    """Tokens that aggregation "fixed" divides a trajectory's sum by."""
    clip_low: NonNegativeFloat = 0.2
    """Lower clip range of the probability ratio: 1 - clip_low."""
    clip_high: NonNegativeFloat = 0.2
    """Upper clip range of the probability ratio: 1 + clip_high."""
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    """Bound on the ratio for negative advantages (c of dual-clip PPO); off when unset."""
    importance_correction: Literal["tis", "icepop", "mis"] | None = None
    """Correction of the loss for the gap between trainer and engine: truncated, or masked by token or sequence."""
    importance_low: NonNegativeFloat = 0.0
    """Weights below this are masked by icepop (0.5 in its paper) and mis."""
    importance_high: PositiveFloat = 2.0
    """Weights above this are cut by tis (2), masked by icepop (5 in its paper) and mis (3)."""
    kl_coefficient: NonNegativeFloat = 0.0
    """Weight of the KL divergence from the policy that the run began with; 0 makes no reference policy."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """Estimate of the divergence on a token; k1 has no gradient on average as a loss, and belongs into the reward."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Whether the divergence is a term of the loss or is taken from the reward of each token."""
    entropy_bonus: NonNegativeFloat = 0.0
    """Weight of the policy's entropy, which is taken from the loss."""
    epochs: PositiveInt = 1
    """Passes over the trajectories of a step."""
    mini_batches: PositiveInt = 1
    """Optimizer steps in one pass, each on as large a part of the trajectories."""

    @property
    def updates(self) -> int:
        """Optimizer steps that are made with the trajectories of one step."""
        return self.epochs * self.mini_batches

    @property
    def needs_old_logprobs(self) -> bool:
        """Whether the trainer's own logprobs are wanted before its first update."""
        return self.updates > 1 or self.penalizes_rewards

    @property
    def needs_reference(self) -> bool:
        """Whether a KL term asks for a reference policy."""
        return self.kl_coefficient > 0

    @property
    def penalizes_rewards(self) -> bool:
        """Whether the KL term is part of the reward."""
        return self.kl_coefficient > 0 and self.kl_in == "reward"

    @property
    def learns_without_advantage(self) -> bool:
        """Whether a trajectory whose advantages are all zero has a gradient still."""
        return self.entropy_bonus > 0 or (self.kl_coefficient > 0 and self.kl_in == "loss")

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.aggregation == "fixed" and self.fixed_length is None:
            raise ValueError("aggregation = 'fixed' needs fixed_length")
        if self.dual_clip is not None and self.policy_loss != "clipped":
            raise ValueError("dual_clip is a part of policy_loss = 'clipped'")
        if self.importance_high < self.importance_low:
            raise ValueError("importance_high must not be less than importance_low")
        return self


class SelectionConfig(Section):
    """Which trajectories of a step are learned from; metrics count those that are not."""

    drop_uniform_groups: bool = False
    """Leave groups whose rewards are all equal out of the batch, so that the loss is a mean over the others."""
    accuracy_window: tuple[float, float] | None = None
    """Keep only groups whose mean accuracy lies between these two, both excluded; all when unset."""
    dynamic_sampling: bool = False
    """Play further prompts until `rollout.prompts_per_step` groups are kept (DAPO)."""
    max_rounds: PositiveInt = 10
    """Rounds of dynamic sampling; after the last a step goes on with the groups it has, and says so."""
    mask_void_turns: bool = False
    """No loss on trajectories with a turn that holds neither a complete code block nor a boxed answer (SimpleTIR)."""
    mask_wrong_truncated: bool = False
    """No loss on wrong trajectories that were cut at the token limit (ZeroTIR)."""
    mask_invented_output: bool = False
    """No loss on correct trajectories with an output block that the model wrote itself (ZeroTIR)."""
    mask_repetition_above: Annotated[float, Field(ge=0, lt=1)] | None = None
    """No loss on trajectories with a larger share of n-grams that repeat earlier ones (ZeroTIR); off when unset."""
    repetition_ngram: PositiveInt = 20
    """Sampled tokens of one such n-gram."""

    @model_validator(mode="after")
    def _selects_something(self) -> Self:
        if self.accuracy_window is not None and not self.accuracy_window[0] < self.accuracy_window[1]:
            raise ValueError("accuracy_window must be two shares, the lower first")
        if self.dynamic_sampling and not self.drop_uniform_groups and self.accuracy_window is None:
            raise ValueError("dynamic_sampling needs drop_uniform_groups or accuracy_window: without them all are kept")
        return self


class LearnerConfig(Section):
    """The DeepSpeed learner."""

    ranks: PositiveInt = 1
    """Learner processes: one for each GPU, any number on a CPU. Ignored under torchrun."""
    cpu_threads: PositiveInt | None = None
    """Compute threads of each rank; the cores divided by the ranks when unset."""
    zero_stage: Literal[0, 1, 2, 3] = 2
    """ZeRO stage: what the ranks share among them (optimizer, gradients, parameters)."""
    dtype: Precision = "bfloat16"
    """Precision of forward and backward."""
    learning_rate: PositiveFloat = 1e-6
    """Peak learning rate."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning rate after the warm-up: constant, or decayed to zero at the last step."""
    warmup_steps: NonNegativeInt = 0
    """Optimizer steps of linear warm-up."""
    betas: tuple[Share, Share] = (0.9, 0.999)
    """AdamW's decay rates."""
    weight_decay: NonNegativeFloat = 0.01
    """AdamW's weight decay."""
    gradient_clip: PositiveFloat = 1.0
    """Largest global gradient norm."""
    row_tokens: PositiveInt = 4096
    """Tokens of one packed row, the unit of forward and backward; raised to the longest sample."""
    gradient_checkpointing: bool = True
    """Recompute activations in the backward pass: less memory, a third more compute."""
    offload_while_sampling: bool = False
    """Move weights and optimizer state to CPU memory while the engine samples (they share the GPUs)."""
    offload_optimizer: bool = False
    """Keep the optimizer's state in CPU memory during the update as well (ZeRO-Offload)."""
    offload_parameters: bool = False
    """Keep the parameters in CPU memory during the update as well (ZeRO-3 only)."""
    timeout_seconds: PositiveFloat = 1800.0
    """Longest wait for any answer of a rank before the run stops."""

    @model_validator(mode="after")
    def _offload_fits_stage(self) -> Self:
        if self.offload_parameters and self.zero_stage != 3:
            raise ValueError("offload_parameters needs zero_stage = 3")
        if self.offload_while_sampling and self.zero_stage < 2:
            raise ValueError("offload_while_sampling needs zero_stage = 2 or 3")
        return self


class CriticConfig(Section):
    """The critic of estimator "ppo"; what is not here it has in common with the learner."""

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
    head_start_steps: NonNegativeInt = 0
    """Steps at the start of a run in which the critic learns alone and the policy stays as it is."""

    @property
    def updates(self) -> int:
        """Optimizer steps that are made with the trajectories of one step."""
        return self.epochs * self.mini_batches


class EvaluationConfig(Section):
    """Measuring on the evaluation sets during the run."""

    every_steps: NonNegativeInt = 4
    """Evaluate after every this many steps, and before the first and after the last; 0 only before and after."""
    max_problems: PositiveInt | None = None
    """Use only the first problems of each set; all when unset."""
    greedy: bool = True
    """Measure greedy accuracy (pass@1 at temperature 0)."""
    samples: NonNegativeInt = 0
    """Trajectories for each problem sampled at `temperature`, whose mean accuracy is measured as well; 0 for none."""
    temperature: PositiveFloat = 1.0
    """Temperature of these samples."""
    max_tool_calls: NonNegativeInt | None = None
    """Tool calls an episode of an evaluation may make; as in training when unset."""

    def episodes(self, problems: int) -> int:
        """Episodes that evaluating a set of so many problems takes."""
        return min(problems, self.max_problems or problems) * (self.greedy + self.samples)

    @model_validator(mode="after")
    def _measures_something(self) -> Self:
        if not self.greedy and self.samples == 0:
            raise ValueError("greedy = false needs samples of at least 1")
        return self


class CheckpointConfig(Section):
    """What is kept on disk."""

    every_steps: NonNegativeInt = 20
    """Write a checkpoint after every this many steps, and after the last; 0 only after the last."""
    keep: PositiveInt = 2
    """Checkpoints kept; older ones are removed once a newer one is complete."""


class ControlConfig(Section):
    """Control experiments: each cuts one causal link on purpose, and a run with it must not learn to use the tool."""

    shuffle_observations: bool = False
    """Answer every tool call with the outcome of another episode's call."""
    shuffle_rewards: bool = False
    """Permute the rewards between the trajectories of a step."""


class TrainConfig(Section):
    """A whole training run."""

    run: RunConfig
    model: ModelConfig
    data: DataConfig
    rollout: RolloutConfig = RolloutConfig()
    engine: EngineConfig = EngineConfig()
    sandbox: SandboxConfig = SandboxConfig()
    reward: RewardConfig = RewardConfig()
    selection: SelectionConfig = SelectionConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    learner: LearnerConfig = LearnerConfig()
    critic: CriticConfig = CriticConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    control: ControlConfig = ControlConfig()

    @model_validator(mode="after")
    def _groups_carry_a_signal(self) -> Self:
        if self.rollout.samples_per_prompt == 1 and self.algorithm.estimator == "rloo":
            raise ValueError("algorithm.estimator = 'rloo' needs rollout.samples_per_prompt of at least 2")
        if self.rollout.temperature == 0:
            raise ValueError("rollout.temperature must be above 0 for training: greedy samples are all equal")
        if self.reward.overlong_buffer >= self.rollout.max_response_tokens:
            raise ValueError("reward.overlong_buffer must be less than rollout.max_response_tokens")
        return self

    @model_validator(mode="after")
    def _ahead_of_the_learner(self) -> Self:
        if self.rollout.max_staleness == 0:
            return self
        if self.algorithm.importance_correction is None:
            raise ValueError("rollout.max_staleness needs algorithm.importance_correction (tis, icepop or mis)")
        if self.engine.sleep_while_learning or self.learner.offload_while_sampling:
            raise ValueError(
                "rollout.max_staleness needs devices of its own for the engine: "
                "engine.sleep_while_learning and learner.offload_while_sampling must be off"
            )
        return self


class SampleConfig(Section):
    """What is sampled, where nothing is learned."""

    problems: str
    """Problem file (.jsonl, .json or .parquet)."""
    output: Path
    """File of trajectories, one JSON object on each line. One that exists is gone on with."""
    samples: PositiveInt = 1
    """Trajectories for each problem."""
    max_problems: PositiveInt | None = None
    """Use only the first this many problems; all of them when unset."""
    seed: int = 0
    """Seed of everything random."""


class RolloutCommandConfig(BaseModel):
    """What `torl.rollout` takes from a configuration; all other sections of it are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    model: ModelConfig
    sample: SampleConfig
    data: EvaluateDataConfig = EvaluateDataConfig()
    rollout: RolloutConfig = RolloutConfig()
    engine: EngineConfig = EngineConfig()
    sandbox: SandboxConfig = SandboxConfig()
    reward: RewardConfig = RewardConfig()


class EvaluateConfig(BaseModel):
    """What `torl.evaluate` takes from a run's configuration; all other sections of it are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    data: EvaluateDataConfig = EvaluateDataConfig()
    rollout: RolloutConfig = RolloutConfig()
    engine: EngineConfig = EngineConfig()
    sandbox: SandboxConfig = SandboxConfig()
    reward: RewardConfig = RewardConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
