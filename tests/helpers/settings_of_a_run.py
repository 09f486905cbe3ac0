"""Each setting of a run with another value, and what shows in an audit that the run had not that value."""

import json
from typing import Any

SHOWN: dict[str, Any] = {
    "model.lora.rank": 1,
    "data.max_prompt_tokens": 64,
    "data.template.name": "zerotir",
    "data.evaluation.heldout.name": "stream",
    "data.evaluation.heldout.path": "heldout.jsonl",
    "data.train.name": "stream",
    "data.train.path": "train.jsonl",
    "data.sampler.name": "curriculum",
    "rollout.prompts_per_step": 7,
    "rollout.samples_per_prompt": 5,
    "rollout.max_response_tokens": 53,
    "rollout.stop": ["x"],
    "rollout.max_tool_calls": 0,
    "rollout.format.name": "zerotir",
    "rollout.format.error_style": "tagged",
    "rollout.format.max_observation_characters": 1,
    "reward.name": "math",
    "reward.parts.answer.name": "exact_match",
    "reward.parts.answer.correct": 0.5,
    "reward.parts.answer.wrong": -0.5,
    "reward.parts.answer.weight": 0.5,
    "reward.parts.answer.answer.name": "dapo",
    "reward.parts.length.name": "failed_code",
    "reward.parts.length.buffer": 20,
    "reward.parts.length.weight": 0.5,
    "run.seed": 2,
    "run.steps": 3,
    "run.token_groups": 3,
    "algorithm.normalize_advantages": False,
    "algorithm.epochs": 2,
    "algorithm.mini_batches": 2,
    "algorithm.estimator.name": "rloo",
    "algorithm.aggregation.name": "sequence",
    "learner.ranks": 3,
    "learner.learning_rate": 0.0005,
    "learner.lr_schedule": "cosine",
    "learner.warmup_steps": 1,
    "evaluation.every_steps": 1,
    "evaluation.before_training": False,
    "evaluation.max_problems": 3,
    "evaluation.samples_per_problem": 1,
    "checkpoint.every_steps": 2,
    "checkpoint.keep_last": 1,
    "selection.groups.zero_variance.name": "few_complete",
    "selection.max_rounds": 10,
    "selection.mask_after_advantages": True,
    "selection.mask.repetitive.above": 0.001,
    "selection.mask.improbable.above": 1.01,
    "selection.mask.wrong_truncated.name": "undecided",
    "selection.mask.void_turn.name": "undecided",
    "selection.mask.undecided.name": "void_turn",
    "selection.mask.repetitive.name": "wrong_truncated",
    "selection.mask.improbable.name": "wrong_truncated",
    "ablation.shuffle": "rewards",
}
"""Settings that the records show without a model."""
OF_REWARDS = [key for key in SHOWN if key.startswith("reward.")]
BY_WEIGHTS: dict[str, Any] = {
    "model.path": "{reference}",
    "rollout.temperature": 0.35,
    "rollout.top_p": 0.5,
    "algorithm.kl.reference": "torl:demo/base_model",
}
"""Settings that log-probabilities show, which are computed again with the weights of the run."""

MACHINE = "it describes the machines, the processes or their waits, which no number of the records depends on"
NO_EFFECT = "the run that it would change has the same records here: it has no such event, or no second update"
UPDATE = "it changes the weights in an update, which is not computed again"
CRITIC = "the run has no critic"
SANDBOX = "the recorded outcomes of calls stand for the tool; torl verify --receipt runs a share of them again"
START = "it describes a start or a report, not the run"
UNSHOWN: dict[str, tuple[Any, str]] = {
    "model.attention": ("eager", MACHINE),
    "model.kernels": ("liger", MACHINE),
    "model.lora.alpha": (32.0, NO_EFFECT),
    "model.lora.target_modules": (["x"], NO_EFFECT),
    "rollout.end_at_void_turn": (True, NO_EFFECT),
    "rollout.speculative_execution": (False, MACHINE),
    "rollout.max_failed_fraction": (0.05, NO_EFFECT),
    "rollout.stall_timeout_seconds": (900.0, MACHINE),
    "rollout.format.fences": ("published", NO_EFFECT),
    "rollout.tools.python.interpreter_state": ("episode", SANDBOX),
    "rollout.tools.python.cpu_seconds": (1.0, SANDBOX),
    "rollout.tools.python.wall_seconds": (30.0, SANDBOX),
    "rollout.tools.python.memory_mib": (256, SANDBOX),
    "rollout.tools.python.description": ("Other.", "the template of the run names no tools"),
    "rollout.tools.python.code_description": ("Other.", "the template of the run names no tools"),
    "engine.dtype": ("bfloat16", "log-probabilities are compared with a wider tolerance"),
    "engine.tensor_parallel": (2, MACHINE),
    "engine.gpu_memory_utilization": (0.5, MACHINE),
    "engine.arguments.enforce_eager": (False, MACHINE),
    "engine.cpu_kv_cache_gib": (0.5, MACHINE),
    "engine.cpu_threads": (2, MACHINE),
    "engine.max_sequences": (64, MACHINE),
    "engine.on_weight_update": ("keep", NO_EFFECT),
    "reward.correct_threshold": (0.5, NO_EFFECT),
    "reward.parts.answer.exact": (True, NO_EFFECT),
    "reward.parts.answer.grader_timeout_seconds": (1.0, MACHINE),
    "placement.check_memory": (False, START),
    "cluster.kind": ("ray", MACHINE),
    "cluster.max_restarts": (4, MACHINE),
    "run.directory": ("runs/other", "a directory may be moved"),
    "run.note": ("Other.", START),
    "run.resume": (True, START),
    "run.trackers.tensorboard.name": ("wandb", START),
    "algorithm.normalize_rewards": (True, "the estimator divides by the deviation of each group, too"),
    "algorithm.entropy_bonus": (0.5, UPDATE),
    "algorithm.policy_loss.clip_low": (0.1, NO_EFFECT),
    "algorithm.policy_loss.clip_high": (0.1, NO_EFFECT),
    "algorithm.kl.coefficient": (0.5, UPDATE),
    "algorithm.kl.target": ("reward", NO_EFFECT),
    "algorithm.kl.estimator.name": ("k1", NO_EFFECT),
    "learner.sequence_parallel": (2, MACHINE),
    "learner.zero_stage": (2, MACHINE),
    "learner.dtype": ("bfloat16", "log-probabilities are compared with a wider tolerance"),
    "learner.betas": ([0.5, 0.9], UPDATE),
    "learner.weight_decay": (0.5, UPDATE),
    "learner.gradient_clip": (0.5, UPDATE),
    "learner.max_row_tokens": (2048, MACHINE),
    "learner.max_stored_logits": (1000000, MACHINE),
    "learner.gradient_checkpointing": (True, MACHINE),
    "learner.weight_transfer": ("shared_memory", MACHINE),
    "learner.verify_weights": (True, MACHINE),
    "learner.timeout_seconds": (900.0, MACHINE),
    "critic.learning_rate": (1e-6, CRITIC),
    "critic.warmup_steps": (1, CRITIC),
    "critic.epochs": (2, CRITIC),
    "critic.mini_batches": (2, CRITIC),
    "critic.value_clip": (0.1, CRITIC),
    "critic.pretrain_steps": (1, CRITIC),
    "selection.mask.mismatched_code.name": ("undecided", NO_EFFECT),
    "health.mode": ("stop", NO_EFFECT),
    "health.ignore": (["gradient-spikes"], NO_EFFECT),
}
"""Settings that cannot be shown from the files of this run, with another value and the reason."""
APART = ("learner.zero_stage", "algorithm.kl.target")
"""Settings of this table whose other values exclude others, or have an effect together with them."""
ONLY_ONE: dict[str, str] = {
    "rollout.max_staleness": "a value above 0 needs an importance correction",
    "rollout.tools.python.name": "the options of the tool are those of this tool",
    "engine.name": "there is one engine",
    "placement.gpus": "the machine has none",
    "algorithm.policy_loss.name": "the options of the loss are those of this loss",
    "evaluation.greedy": "an evaluation without samples is greedy",
}
"""Settings that cannot have another value alone, with the reason."""


def with_values(settings: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A configuration with other values. Another choice has no options of the one before."""
    changed: dict[str, Any] = json.loads(json.dumps(settings))
    for key, value in changes.items():
        *path, last = key.split(".")
        section = changed
        for name in path:
            section = section[name]
        assert section[last] != value, key
        if last == "name" and path[0] != "data":
            section.clear()
        section[last] = value
    return changed
