"""The built-in advantage estimators. No torch."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from torl.algorithms.advantages import TokenAdvantages
from torl.algorithms.group_advantages import dr_grpo, grpo, gtpo, rloo
from torl.algorithms.token_advantages import ppo, reinforce_plus_plus, reinforce_plus_plus_baseline

ESTIMATORS: Mapping[str, Callable[..., TokenAdvantages] | str] = MappingProxyType(
    {
        "grpo": grpo,
        "dr_grpo": dr_grpo,
        "rloo": rloo,
        "reinforce_plus_plus": reinforce_plus_plus,
        "reinforce_plus_plus_baseline": reinforce_plus_plus_baseline,
        "ppo": ppo,
        "gtpo": gtpo,
        "maxrl": "torl.algorithms.reward_advantages:maxrl",
        "gdpo": "torl.algorithms.reward_advantages:gdpo",
        "aspo": "torl.algorithms.tool_advantages:aspo",
        "adatir": "torl.algorithms.tool_advantages:adatir",
        "gtpo_similar_code": "torl.algorithms.tool_advantages:gtpo_similar_code",
        "distillation": "torl.algorithms.distillation:distillation",
    }
)
"""Built-in estimators by their names in configurations."""
