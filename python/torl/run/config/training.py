"""The configuration of a run: one tree of frozen, validated sections, with a docstring below every field.

Sizes carry their unit in the name. Paths beginning with `torl:` name files inside the package. A field that is a
`Choice` is a section with a `name`; its other keys are options of the chosen class or function (`torl.base.options`).
"""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self

import tomli_w
from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from torl.base.options import Choice, Section, default_choice
from torl.base.runtime.cluster.protocol import ClusterConfig
from torl.base.types import RewardComparison
from torl.components.algorithms.advantages import try_estimator
from torl.components.algorithms.masks import wants_reference
from torl.components.algorithms.requirements import requirements_of
from torl.components.algorithms.selection import zero_variance
from torl.components.engine import EngineOptions
from torl.components.formats.format import tool_mismatch
from torl.components.rewards import Reward
from torl.components.tools import Tool
from torl.components.tools.function import declared_parameters
from torl.run.config.choices import EngineChoice, RewardChoice
from torl.run.config.learning import AlgorithmConfig, CriticConfig, LearnerConfig, PlacementConfig, SelectionConfig
from torl.run.config.rollout import DataConfig, EvaluationSets, ModelConfig, PromptConfig, RolloutConfig
from torl.run.config.run import AblationConfig, CheckpointConfig, EvaluationConfig, HealthConfig, RunConfig, RunSettings
from torl.run.config.schedule import Path, Schedule, take_schedules, value_at, value_in, with_tree_values, with_value

_COMMON_SETTINGS = (
    "model.path",
    "data.template",
    "data.max_prompt_tokens",
    "rollout.max_response_tokens",
    "rollout.temperature",
    "rollout.format",
    "rollout.tools",
    "rollout.environment",
    "rollout.agent",
    "rollout.max_tool_calls",
    "engine.gpu_memory_utilization",
    "engine.tensor_parallel",
    "reward",
    "placement.gpus",
)


def provides_itself(tool: Any) -> bool:
    """Whether a tool has the name of its section; a server provides tools under other names."""
    return getattr(tool, "provided_tools", Tool.provided_tools) is Tool.provided_tools


class ModelRunConfig(Section):
    """The sections that all commands share: everything that playing episodes takes."""

    common_settings: ClassVar[Collection[str]] = _COMMON_SETTINGS
    """The settings that people change most often: the first page of `--help`."""
    outputs: ClassVar[Collection[str]] = ()
    """The settings that name a file to write, which the directory of a run may not choose."""

    model: ModelConfig
    data: PromptConfig = Field(default_factory=PromptConfig)
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    engine: EngineChoice = default_choice("vllm")
    """The inference engine."""
    reward: RewardChoice = default_choice("rubric")
    """The reward of trajectories."""
    placement: PlacementConfig = Field(default_factory=PlacementConfig)
    """The devices of the learner and the engines."""
    cluster: ClusterConfig = Field(default_factory=ClusterConfig)
    """The machines of the run."""
    _schedules: dict[Path, Schedule] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _read_schedules(cls, tree: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Validate the configuration of each stage; the fields hold the largest values."""
        schedules = take_schedules(cls, tree) if isinstance(tree, dict) else {}
        if not schedules:
            return handler(tree)
        stages = {
            step: handler(with_tree_values(tree, {path: value_at(each, step) for path, each in schedules.items()}))
            for step in sorted({step for schedule in schedules.values() for step, _ in schedule})
        }
        schedules = {  # as validated: 1e3 is an integer where the field is one
            path: tuple((step, value_in(stages[step], path)) for step, _ in schedule)
            for path, schedule in schedules.items()
        }
        largest = {path: max(value for _, value in schedule) for path, schedule in schedules.items()}
        config = handler(with_tree_values(tree, largest))
        config._schedules = schedules
        return config

    @model_serializer(mode="wrap")
    def _write_schedules(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        tree: dict[str, Any] = handler(self)
        pairs = {path: [list(pair) for pair in schedule] for path, schedule in self._schedules.items()}
        return with_tree_values(tree, pairs) if pairs else tree

    def scheduled_values(self, step: int) -> dict[str, float]:
        """Return the values of the settings that change with the step, by their dotted names."""
        return {".".join(path): value_at(schedule, step) for path, schedule in self._schedules.items()}

    def at_step(self, step: int) -> Self:
        """Return the configuration of a training step, from 0: with the values of that step instead of schedules."""
        if not self._schedules:
            return self
        config = self.model_copy()
        for path, schedule in self._schedules.items():
            config = with_value(config, path, value_at(schedule, step))
        config._schedules = {}
        return config

    @property
    def schedule_steps(self) -> list[int]:
        """The steps at which a setting has a new value, without step 0."""
        return sorted({step for schedule in self._schedules.values() for step, _ in schedule} - {0})

    def __str__(self) -> str:
        """Return the resolved tree as TOML, without unset fields; reading it back gives an equal tree."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))

    @property
    def longest_prompt(self) -> int:
        """The maximum length of a prompt that is played, in tokens."""
        return self.data.max_prompt_tokens

    @property
    def longest_response(self) -> int:
        """The maximum length of a response that is played, in tokens."""
        return self.rollout.max_response_tokens

    @property
    def evaluation_reward(self) -> Choice[Reward] | None:
        """The reward of evaluations, if it is not `reward`."""
        return None

    @property
    def plays_episodes(self) -> bool:
        """Whether an engine samples."""
        return True

    @model_validator(mode="after")
    def _format_reaches_tools(self) -> Self:
        if not self.rollout.format.is_imported:
            return self
        form = self.rollout.format.make()
        for name, tool in self.rollout.tools.items():
            parameters = declared_parameters(tool) if isinstance(form.tools, Mapping) else None
            if provides_itself(tool.target) and (reason := tool_mismatch(form, name, parameters)):
                raise ValueError(
                    f"rollout.tools.{name} cannot be called in the format {self.rollout.format.name!r}: {reason}; "
                    "rename the section, leave it out, or choose another rollout.format"
                )
        return self

    @model_validator(mode="after")
    def _choices_fit(self) -> Self:
        choices: dict[str, Choice[Any]] = {
            "rollout.format": self.rollout.format,
            **{f"rollout.tools.{name}": tool for name, tool in self.rollout.tools.items()},
            **({} if self.rollout.environment is None else {"rollout.environment": self.rollout.environment}),
            "engine": self.engine,
            "reward": self.reward,
            **({} if self.evaluation_reward is None else {"evaluation.reward": self.evaluation_reward}),
        }
        for key, choice in choices.items():
            try:
                choice.options.check_within(self)
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from error
        return self


class LearningConfig(ModelRunConfig):
    """The sections that training and fine-tuning share."""

    run: RunSettings
    data: EvaluationSets
    algorithm: AlgorithmConfig = Field(default_factory=AlgorithmConfig)
    learner: LearnerConfig = Field(default_factory=LearnerConfig)
    critic: CriticConfig = Field(default_factory=CriticConfig)
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)

    @property
    def longest_prompt(self) -> int:
        """The maximum length of a prompt that training or an evaluation plays, in tokens."""
        return max(self.data.max_prompt_tokens, self.evaluation.longest_prompt(self.data))

    @property
    def longest_response(self) -> int:
        """The maximum length of a response that training or an evaluation plays, in tokens."""
        return max(self.rollout.max_response_tokens, self.evaluation.longest_response(self.rollout))

    @property
    def evaluation_reward(self) -> Choice[Reward] | None:
        """The reward of evaluations, if it is not `reward`."""
        return self.evaluation.reward

    @property
    def longest_sample(self) -> int:
        """The maximum length of a sample that is trained, in tokens."""
        return self.longest_prompt + self.rollout.max_response_tokens

    @property
    def critic_only_steps(self) -> int:
        """The number of steps at the start in which the policy is not updated."""
        return self.critic.pretrain_steps if self.algorithm.needs_critic else 0

    @property
    def policy_temperature(self) -> float:
        """The temperature by which the learner divides logits."""
        return self.rollout.temperature

    @property
    def has_validation(self) -> bool:
        """Whether evaluations measure the loss on examples."""
        return False

    @property
    def total_steps(self) -> int:
        """The number of training steps."""
        raise NotImplementedError(f"{type(self).__name__} has no steps")


class TrainConfig(LearningConfig):
    """The configuration of a training run."""

    common_settings: ClassVar[Collection[str]] = (
        *_COMMON_SETTINGS,
        "model.lora.rank",
        "data.train",
        "data.evaluation",
        "rollout.prompts_per_step",
        "rollout.samples_per_prompt",
        "rollout.max_staleness",
        "run.directory",
        "run.seed",
        "run.steps",
        "run.resume",
        "selection.groups",
        "algorithm.estimator",
        "algorithm.policy_loss",
        "algorithm.kl.coefficient",
        "algorithm.mini_batches",
        "learner.zero_stage",
        "learner.dtype",
        "learner.learning_rate",
        "evaluation.every_steps",
        "evaluation.samples_per_problem",
        "checkpoint.every_steps",
    )

    run: RunConfig
    data: DataConfig
    selection: SelectionConfig = Field(default_factory=SelectionConfig)
    ablation: AblationConfig = Field(default_factory=AblationConfig)
    health: HealthConfig = Field(default_factory=HealthConfig)

    @property
    def total_steps(self) -> int:
        """The number of training steps."""
        return self.run.steps

    @property
    def min_group_size(self) -> int:
        """The minimum number of trajectories in a group of the batch; a single one cannot be compared."""
        return min(self.rollout.samples_per_prompt, max(2, self.algorithm.min_group_size))

    @property
    def reward_comparison(self) -> RewardComparison:
        """The rewards that must differ for a step to have a signal: those of a group, of the batch, or none."""
        requirements = requirements_of(self.algorithm.estimator.target)
        if requirements.uniform_groups:
            return "none"
        return "batch" if requirements.across_groups and not self._dropping_uniform_groups else "group"

    @model_validator(mode="after")
    def _groups_carry_a_signal(self) -> Self:
        smallest = self.algorithm.min_group_size
        if self.rollout.samples_per_prompt < smallest:
            name = self.algorithm.estimator.name
            raise ValueError(f"estimator {name!r} requires rollout.samples_per_prompt of at least {smallest}")
        if not all(self.at_step(step).rollout.temperature for step in (0, *self.schedule_steps)):
            raise ValueError("rollout.temperature must be above 0 for training: greedy samples are all equal")
        return self

    @model_validator(mode="after")
    def _groups_can_be_compared(self) -> Self:
        """Refuse groups of one if nothing but their differences is learned from."""
        algorithm, name = self.algorithm, self.algorithm.estimator.name
        learns_otherwise = algorithm.learns_without_advantage or algorithm.penalizes_rewards or algorithm.imitation
        compares = self.reward_comparison == "group" and not algorithm.estimator.is_custom  # which compares as it likes
        if self.rollout.samples_per_prompt == 1 and compares and not learns_otherwise:
            raise ValueError(
                f"estimator {name!r} compares the responses to one prompt: rollout.samples_per_prompt = 1 learns "
                "nothing; set at least 2"
            )
        return self

    @model_validator(mode="after")
    def _mini_batches_have_trajectories(self) -> Self:
        trajectories = self.rollout.prompts_per_step * self.rollout.samples_per_prompt
        for setting, count in (
            ("algorithm.mini_batches", self.algorithm.mini_batches),
            ("critic.mini_batches", self.critic.mini_batches),
        ):
            if count > trajectories:
                raise ValueError(
                    f"{setting} = {count} is more than the {trajectories} trajectories of a step "
                    "(rollout.prompts_per_step x rollout.samples_per_prompt)"
                )
        return self

    @model_validator(mode="after")
    def _selection_keeps_the_signal(self) -> Self:
        estimator, dropping = self.algorithm.estimator, self._dropping_uniform_groups
        if dropping and requirements_of(estimator.target).uniform_groups:
            raise ValueError(
                f"selection.groups.{dropping[0]} drops groups of equal rewards, from which estimator "
                f"{estimator.name!r} learns, too: set it to false, or remove it"
            )
        return self

    @property
    def _dropping_uniform_groups(self) -> list[str]:
        """Names of the filters of `selection.groups` that drop groups of equal rewards."""
        return [name for name, each in self.selection.groups.items() if each.target is zero_variance]

    @model_validator(mode="after")
    def _teacher_prompts_fit(self) -> Self:
        partner = next((name for name in ("agent", "environment") if getattr(self.rollout, name) is not None), None)
        if self.algorithm.kl.prompt is not None and partner is not None:
            raise ValueError(
                f"algorithm.kl.prompt cannot be combined with rollout.{partner}, which changes prompts itself"
            )
        return self

    @model_validator(mode="after")
    def _estimator_returns_advantages(self) -> Self:
        estimator = self.algorithm.estimator
        if estimator.is_custom and estimator.is_imported:
            try_estimator(estimator.bind(), requirements_of(estimator.target), self.rollout.samples_per_prompt)
        return self

    @model_validator(mode="after")
    def _masks_keep_reference(self) -> Self:
        if any(wants_reference(mask.target) for mask in self.selection.mask.values()):
            algorithm = self.algorithm.model_copy()
            algorithm._keeps_reference = True
            self.__dict__["algorithm"] = algorithm
        return self

    @model_validator(mode="after")
    def _staleness_is_corrected(self) -> Self:
        loss, is_corrected = self.algorithm.policy_loss, self.algorithm.importance_correction is not None
        has_engine_ratio = requirements_of(loss.target).engine_ratio
        if has_engine_ratio and is_corrected:
            raise ValueError(
                f"algorithm.policy_loss = {loss.name!r} has its ratio to the engine, which "
                "algorithm.importance_correction would apply again: remove it"
            )
        if self.rollout.max_staleness == 0:
            return self
        if not (is_corrected or has_engine_ratio):
            raise ValueError("rollout.max_staleness requires algorithm.importance_correction, such as tis")
        engine = self.engine.options
        sleeps = isinstance(engine, EngineOptions) and engine.sleep_while_learning
        if sleeps or self.learner.offloads_while_sampling:
            raise ValueError(
                "rollout.max_staleness requires separate devices for the engine: "
                "engine.sleep_while_learning must be off or unset, and learner.offload not 'while_sampling'"
            )
        return self


def reference_model(algorithm: AlgorithmConfig, model: ModelConfig) -> ModelConfig | None:
    """Return the reference model that is loaded in addition to the policy; None if the algorithm needs none.

    The policy itself is the reference model if `kl.reference` names it, and with its adapters disabled.
    """
    kl = algorithm.kl
    is_policy = kl.current_policy or (model.adapters is not None and kl.path is None)
    if not algorithm.needs_reference or is_policy:
        return None
    return model if kl.path is None else model.model_copy(update={"path": kl.path})
