"""The precision that the cores of a machine compute in."""

import re
from pathlib import Path
from typing import Any

from torl.config import LearningConfig
from torl.placement.resolve import ResolvedConfig, local_engine_options

CPU_INFO = Path("/proc/cpuinfo")
# With one of these sets, oneDNN, which computes torch's matrix products, has instructions for bfloat16.
_HAVE_BFLOAT16 = ({"avx512bw", "avx512dq", "avx512vl"}, {"avx_ne_convert"}, {"bf16"})


def emulates_bfloat16(cpu_info: str) -> bool:
    """Whether cores with this /proc/cpuinfo have no instructions for bfloat16.

    Their products of matrices then take several times as long as in float32: 5 to 8 times on an AMD EPYC with AVX2.
    """
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", cpu_info, flags=re.MULTILINE)
    return flags is not None and not any(needed <= {*flags.group(1).split()} for needed in _HAVE_BFLOAT16)


def slow_precision(resolved: ResolvedConfig[Any]) -> str | None:
    """Return a warning about settings whose precision this machine emulates, or None if there are none."""
    config = resolved.config
    if resolved.placement.machine.gpus or not emulates_bfloat16(CPU_INFO.read_text(encoding="utf-8")):
        return None
    options = local_engine_options(config)
    dtypes = {
        "engine.dtype": options.dtype if options else None,
        "learner.dtype": config.learner.dtype if isinstance(config, LearningConfig) else None,
    }
    slow = [name for name, dtype in dtypes.items() if dtype == "bfloat16"]
    if not slow:
        return None
    return (
        f'the cores have no instructions for bfloat16: {" and ".join(slow)} = "float32" is several times as fast, '
        "in twice the memory"
    )
