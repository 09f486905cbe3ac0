"""Playing problems: the engine protocol, vLLM behind it, and the episode loop.

The package may be called: `torl.rollout(model, problems)` samples trajectories (see `torl.rollout.sampling.rollout`).
"""

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from torl.rollout.sampling import rollout

        return rollout(*arguments, **options)


sys.modules[__name__].__class__ = _CallablePackage
