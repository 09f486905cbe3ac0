"""The mathematics of the update: advantage estimators, losses, aggregations. Pure functions of arrays. No torch."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from torl.components.algorithms.advantages import TokenAdvantages
from torl.components.algorithms.reward_advantages import dr_grpo, gdpo, grpo, gtpo, maxrl, rloo
from torl.components.algorithms.token_advantages import (
    distillation,
    optimal_token_baseline,
    ppo,
    reinforce_plus_plus,
    reinforce_plus_plus_baseline,
)
from torl.components.algorithms.tool_advantages import adatir, aspo, gtpo_similar_code

ESTIMATORS: Mapping[str, Callable[..., TokenAdvantages]] = MappingProxyType(
    {
        "grpo": grpo,
        "dr_grpo": dr_grpo,
        "rloo": rloo,
        "reinforce_plus_plus": reinforce_plus_plus,
        "reinforce_plus_plus_baseline": reinforce_plus_plus_baseline,
        "ppo": ppo,
        "gtpo": gtpo,
        "optimal_token_baseline": optimal_token_baseline,
        "maxrl": maxrl,
        "gdpo": gdpo,
        "aspo": aspo,
        "adatir": adatir,
        "gtpo_similar_code": gtpo_similar_code,
        "distillation": distillation,
    }
)
"""Built-in estimators by their names in configurations."""
