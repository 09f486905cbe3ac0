"""The GPUs of a machine, as nvidia-smi and the driver describe them."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from torl.base.errors import ConfigError

_QUERY = (
    "nvidia-smi",
    "--query-gpu=index,uuid,name,memory.total,memory.used,driver_version",
    "--format=csv,noheader,nounits",
)
_QUERY_SECONDS = 30.0  # includes loading a driver that no program keeps loaded
_CONTROL_DEVICE = Path("/dev/nvidiactl")
_CUDA_RUNTIME = "nvidia-cuda-runtime"
# The oldest driver that runs programs of a CUDA release (NVIDIA's CUDA Toolkit release notes, "minor version
# compatibility").
_OLDEST_DRIVER = {12: 525, 13: 580}


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that this process may use.

    Attributes:
        name: Name in CUDA_VISIBLE_DEVICES.
        model: Product name.
        memory_bytes: Size of its memory.
        used_bytes: Memory in use by other programs.
    """

    name: str
    model: str
    memory_bytes: int
    used_bytes: int = 0

    @property
    def free_bytes(self) -> int:
        """Memory that a run can use."""
        return self.memory_bytes - self.used_bytes


def visible_gpus(listing: str, visible: str | None) -> tuple[tuple[Gpu, ...], str | None]:
    """Parse a listing of `nvidia-smi`; returns the visible GPUs in the order of CUDA_VISIBLE_DEVICES, and the driver.

    Raises:
        ConfigError: CUDA_VISIBLE_DEVICES names a GPU that the machine does not have.
    """
    rows = [[cell.strip() for cell in line.split(",")] for line in listing.splitlines() if line.strip()]
    driver = rows[0][5] if rows else None
    by_name = {
        name: Gpu(name, model, int(float(total)) << 20, _used_bytes(used))
        for index, uuid, model, total, used, _ in rows
        for name in (index, uuid)
    }
    if visible is None:
        return tuple(by_name[index] for index, *_ in rows), driver
    names = [name.strip() for name in visible.split(",") if name.strip()]
    if rows and (unknown := [name for name in names if name not in by_name and name != "-1"]):
        raise ConfigError(
            f"CUDA_VISIBLE_DEVICES names {', '.join(unknown)}, and this machine has the GPUs "
            f"{', '.join(index for index, *_ in rows)} (numbers, or complete UUIDs)"
        )
    return tuple(by_name[name] for name in names if name in by_name), driver


def _used_bytes(mebibytes: str) -> int:
    """Convert a cell of the listing to bytes. Some GPUs do not report the memory in use ("[N/A]")."""
    return int(float(mebibytes)) << 20 if mebibytes[:1].isdecimal() else 0


def require_driver(driver: str | None, cuda: str | None) -> None:
    """Raise ConfigError if the driver is too old for the installed CUDA."""
    oldest = _OLDEST_DRIVER.get(int(cuda.split(".")[0])) if cuda else None
    if driver and oldest and int(driver.split(".")[0]) < oldest:
        raise ConfigError(
            f"the driver of this machine's GPUs is {driver}, and the installed CUDA {cuda} needs {oldest} or later: "
            'update the driver, or set CUDA_VISIBLE_DEVICES="" to compute on the cores'
        )


def require_one_order(gpus: tuple[Gpu, ...], order: str | None) -> None:
    """Raise ConfigError if CUDA and nvidia-smi number different GPUs in different orders."""
    if len({(gpu.model, gpu.memory_bytes) for gpu in gpus}) > 1 and order != "PCI_BUS_ID":
        models = ", ".join(sorted({gpu.model for gpu in gpus}))
        raise ConfigError(
            f"this machine has different GPUs ({models}), which CUDA numbers by speed: set CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )


def list_gpus() -> str:
    """Return the listing of nvidia-smi. Empty on a machine without NVIDIA GPUs.

    Raises:
        ConfigError: nvidia-smi is missing, fails or does not respond.
    """
    if shutil.which(_QUERY[0]) is None:
        if _CONTROL_DEVICE.exists():
            raise ConfigError(
                "this machine has NVIDIA GPUs, but no nvidia-smi to list them: run the container with the driver "
                'capability "utility"'
            )
        return ""
    try:
        query = subprocess.run(_QUERY, capture_output=True, text=True, timeout=_QUERY_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"nvidia-smi did not respond within {_QUERY_SECONDS:.0f} s: check the NVIDIA driver"
        ) from error
    if query.returncode == 6 or "No devices were found" in query.stdout:  # a driver without GPUs
        return ""
    if query.returncode != 0:
        raise ConfigError(f"nvidia-smi: {(query.stdout + query.stderr).strip()}")
    return query.stdout


def installed_cuda() -> str | None:
    """Return the version of the installed CUDA runtime; None without one."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and rarely needed

    try:
        return version(_CUDA_RUNTIME)
    except PackageNotFoundError:
        return None
