"""The laboratory of torl: it reads runs, and never takes part in them.

    import torl_lab

    audit = torl_lab.verify("runs/demo")

Its folders are its commands: the viewer, the audit, the doctor, replays, evaluations and sweeps, the curation of
problems, reports, and the exchange of trajectories with other libraries. Names are imported at their first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torl_lab.calls import verify as verify

_MODULE_OF = {"verify": "torl_lab.calls"}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'torl_lab' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
