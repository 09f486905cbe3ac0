"""The rows of `algorithm_table.py`: settings of the demo for each algorithm, format and number of calls."""

PROBLEMS, SAMPLES = 128, 4
SETTINGS = {
    "rollout.max_response_tokens": 192,  # room for several calls
    "learner.learning_rate": 2e-4,
    "evaluation.every_steps": 0,
    "evaluation.max_problems": PROBLEMS,
    "evaluation.samples_per_problem": SAMPLES,
    "evaluation.greedy": False,
    "checkpoint.every_steps": 0,
}
Overrides = dict[str, str | int | float | bool]

ALGORITHMS: dict[str, Overrides] = {
    "grpo": {},
    "dr_grpo": {
        "algorithm.estimator": "dr_grpo",
        "algorithm.aggregation.name": "fixed_length",
        "algorithm.aggregation.length": 192,
    },
    "rloo": {"algorithm.estimator": "rloo"},
    "reinforce_plus_plus": {
        "algorithm.estimator": "reinforce_plus_plus",
        "selection.groups.zero_variance": False,
    },
    "reinforce_plus_plus_baseline": {
        "algorithm.estimator": "reinforce_plus_plus_baseline",
        "selection.groups.zero_variance": False,
    },
    "ppo": {
        "algorithm.estimator": "ppo",
        "algorithm.normalize_advantages": True,
        "selection.groups.zero_variance": False,
        "critic.learning_rate": 1e-3,
        "critic.mini_batches": 4,
        "critic.pretrain_steps": 2,
    },
    "dapo": {
        "selection.groups.zero_variance": False,
        "selection.groups.accuracy_outside": "{ range = [0.0, 1.0] }",
        "selection.max_rounds": 4,
        "reward.parts.length.name": "overlong",
        "reward.parts.length.buffer": 32,
        "algorithm.policy_loss.clip_high": 0.28,
        "algorithm.mini_batches": 2,
    },
    "gspo": {
        "algorithm.policy_loss.name": "gspo",
        "algorithm.aggregation": "sequence",
        "algorithm.mini_batches": 2,
    },
    "cispo": {
        "algorithm.policy_loss.name": "cispo",
        "algorithm.policy_loss.clip_low": 1.0,
        "algorithm.policy_loss.clip_high": 0.28,
        "algorithm.mini_batches": 2,
    },
    "dppo": {"algorithm.policy_loss.name": "dppo", "algorithm.mini_batches": 2},
    "sapo": {"algorithm.policy_loss.name": "sapo", "algorithm.aggregation": "sequence", "algorithm.mini_batches": 2},
    "vespo": {"algorithm.policy_loss.name": "vespo", "algorithm.mini_batches": 2},
    "gmpo": {"algorithm.policy_loss.name": "gmpo", "algorithm.aggregation": "sequence", "algorithm.mini_batches": 2},
    "luspo": {
        "algorithm.policy_loss.name": "gspo",
        "algorithm.aggregation.name": "fixed_length",
        "algorithm.aggregation.length": 1,
        "algorithm.mini_batches": 2,
    },
    "sequence_masked": {
        "algorithm.policy_loss.name": "sequence_masked",
        "algorithm.policy_loss.threshold": 0.1,
        "algorithm.mini_batches": 2,
    },
    "clip_cov": {
        "algorithm.policy_loss.name": "clip_cov",
        "algorithm.policy_loss.share": 0.02,
        "algorithm.mini_batches": 2,
    },
    "kl_cov": {
        "algorithm.policy_loss.name": "kl_cov",
        "algorithm.policy_loss.share": 0.02,
        "algorithm.mini_batches": 2,
    },
    "high_entropy": {"algorithm.policy_loss.name": "high_entropy"},
    "maxrl": {"algorithm.estimator": "maxrl", "reward.parts.answer.wrong": 0.0},
    "gdpo": {
        "algorithm.estimator": "gdpo",
        "reward.parts.length.name": "overlong",
        "reward.parts.length.buffer": 32,
        "selection.groups.zero_variance": False,
    },
    "optimal_token_baseline": {"algorithm.estimator": "optimal_token_baseline"},
    "aspo": {"algorithm.estimator": "aspo"},
    "adatir": {
        "algorithm.estimator.name": "adatir",
        "algorithm.estimator.max_calls": 1,
        "selection.groups.zero_variance": False,  # groups without a wrong answer are the easy ones
    },
    "roc": {
        "rollout.samples_per_prompt": 16,
        "selection.members.roc.name": "resample_on_correct",
        "selection.members.roc.count": 8,
    },
    "echo": {"algorithm.imitation.name": "observations", "algorithm.imitation.weight": 0.1},
    "echo_shuffled": {
        "algorithm.imitation.name": "observations",
        "algorithm.imitation.weight": 0.1,
        "ablation.shuffle": "observations",
    },
    "opsd": {
        "algorithm.estimator": "distillation",
        "algorithm.kl.reference": "current_policy",
        "algorithm.kl.prompt": "torl.recipes.sdpo:with_answer",
        "selection.groups.zero_variance": False,  # rewards are not used
    },
    "sdpo": {
        "algorithm.estimator": "distillation",
        "algorithm.kl.reference": "current_policy",
        "algorithm.kl.prompt": "torl.recipes.sdpo:with_feedback",
        "selection.groups.zero_variance": False,
    },
    "shuffled_rewards": {"ablation.shuffle": "rewards"},
    "shuffled_observations": {"ablation.shuffle": "observations"},
}


LABELS = {
    "grpo": "GRPO",
    "dr_grpo": "Dr. GRPO",
    "rloo": "RLOO",
    "reinforce_plus_plus": "REINFORCE++",
    "reinforce_plus_plus_baseline": "REINFORCE++-baseline",
    "ppo": "PPO",
    "dapo": "DAPO",
    "gspo": "GSPO",
    "cispo": "CISPO",
    "dppo": "DPPO",
    "sapo": "SAPO",
    "vespo": "VESPO",
    "gmpo": "GMPO",
    "luspo": "LUSPO",
    "sequence_masked": "DeepSeek-V3.2's sequence mask",
    "clip_cov": "Clip-Cov",
    "kl_cov": "KL-Cov",
    "high_entropy": "the fifth of highest entropy",
    "maxrl": "MaxRL",
    "gdpo": "GDPO",
    "optimal_token_baseline": "optimal token baseline",
    "aspo": "ASPO",
    "adatir": "AdaTIR",
    "roc": "GRPO-RoC, 16 samples of which 8 are learned from",
    "echo": "ECHO",
    "echo_shuffled": "ECHO, observations of other calls",
    "opsd": "OPSD",
    "sdpo": "SDPO",
    "shuffled_rewards": "GRPO, rewards of other responses",
    "shuffled_observations": "GRPO, observations of other calls",
}

ROWS: dict[str, tuple[str, Overrides]] = {
    **{name: (LABELS[name], overrides) for name, overrides in ALGORITHMS.items()},
    "grpo_2_updates": ("GRPO, two updates a step", {"algorithm.mini_batches": 2}),  # as dapo, gspo and cispo make
    "no_calls": ("GRPO, C = N = 0: the formats are one", {"rollout.max_tool_calls": 0}),
    **{f"torl_{calls}": (f"GRPO, C = {calls}", {"rollout.max_tool_calls": calls}) for calls in (2, 4)},
    **{
        f"zerotir_{calls}": (
            f"GRPO, ZeroTIR's format, N = {calls}",
            {"rollout.format": "zerotir", "rollout.max_tool_calls": calls},
        )
        for calls in (1, 2, 4)
    },
    **{
        f"torl_{calls}_{name}": (f"GRPO, C = {calls}, {what}", {"rollout.max_tool_calls": calls, **overrides})
        for calls in (1, 2)
        for name, what, overrides in (
            (
                "penalty",
                "-0.5 for failed code",
                {"reward.parts.failed_code.name": "failed_code", "reward.parts.failed_code.weight": -0.5},
            ),
            ("hidden", "errors hidden", {"rollout.format.error_style": "hidden"}),
        )
    },
}


def base_of(name: str) -> str:
    """The row of GRPO that a row is compared with: with as many updates a step."""
    two = name != "grpo_2_updates" and ROWS[name][1].get("algorithm.mini_batches") == 2
    return "grpo_2_updates" if two else "grpo"
