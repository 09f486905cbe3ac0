"""What devices a machine has, read in less than a second and without loading a library that would take hold of them."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torl.errors import ConfigError

_QUERY = ("nvidia-smi", "--query-gpu=index,uuid,name,memory.total,driver_version", "--format=csv,noheader,nounits")
_QUERY_SECONDS = 30.0  # a driver that no program keeps loaded is loaded first
_CONTROL_DEVICE = Path("/dev/nvidiactl")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_CUDA_RUNTIME = "nvidia-cuda-runtime"
# The oldest driver that runs programs of a CUDA release (NVIDIA's CUDA Toolkit release notes, "minor version
# compatibility").
_OLDEST_DRIVER = {12: 525, 13: 580}


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU that this process may use."""

    name: str
    """As CUDA_VISIBLE_DEVICES names it."""
    model: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine, as far as placing a run on it asks."""

    gpus: tuple[Gpu, ...]
    """Those that are visible; where there are none, everything computes on the cores."""
    cores: int
    host_bytes: int
    driver: str | None = None
    nodes: tuple[int, ...] = ()
    """Where it stands for the nodes of a cluster: how many of the devices each has, in their order."""

    @classmethod
    def with_gpus(cls, count: int, memory_bytes: int, *, cores: int = 16, host_bytes: int = 10**12) -> "Machine":
        """A machine that one thinks of, with equal GPUs."""
        gpus = tuple(Gpu(str(number), "GPU", memory_bytes) for number in range(count))
        return cls(gpus, cores, host_bytes)

    @property
    def device(self) -> str:
        """What it computes on, for messages: "GPU" or "core"."""
        return "GPU" if self.gpus else "core"

    @property
    def devices(self) -> int:
        """How many of them there are."""
        return len(self.gpus) or self.cores

    def node_of(self, device: int) -> tuple[int, int]:
        """The node that has a device, and the device's number there."""
        for node, count in enumerate(self.nodes or (self.devices,)):
            if device < count:
                return node, device
            device -= count
        raise ValueError(f"there are {self.devices} devices")


def combine_machines(machines: Sequence[Machine]) -> Machine:
    """The nodes of a cluster as one machine: its devices are numbered from the first node to the last.

    Raises:
        ConfigError: some have GPUs, and others have none.
    """
    if len(machines) == 1:
        return machines[0]
    counts = tuple(len(machine.gpus) for machine in machines)
    if any(counts) and not all(counts):
        raise ConfigError(
            f"of {len(machines)} nodes {sum(count == 0 for count in counts)} have no GPU that can be used: leave them "
            "out of the cluster (cluster.nodes), or see what nvidia-smi and CUDA_VISIBLE_DEVICES say there"
        )
    return Machine(
        gpus=tuple(gpu for machine in machines for gpu in machine.gpus),
        cores=sum(machine.cores for machine in machines),
        host_bytes=sum(machine.host_bytes for machine in machines),
        driver=machines[0].driver,
        nodes=counts if any(counts) else tuple(machine.cores for machine in machines),
    )


def this_machine(environment: Mapping[str, str] = os.environ) -> Machine:
    """The machine that this process runs on.

    Raises:
        ConfigError: it has GPUs that cannot be used as they are: says what is in the way.
    """
    listing = _listed_gpus()
    gpus, driver = visible_gpus(listing, environment.get("CUDA_VISIBLE_DEVICES"))
    if gpus:
        require_driver(driver, _installed_cuda())
        require_one_order(gpus, environment.get("CUDA_DEVICE_ORDER"))
    return Machine(gpus, len(os.sched_getaffinity(0)), _host_bytes(), driver if gpus else None)


def visible_gpus(listing: str, visible: str | None) -> tuple[tuple[Gpu, ...], str | None]:
    """The GPUs in a listing of `nvidia-smi` that CUDA_VISIBLE_DEVICES leaves visible, in its order; and the driver.

    Raises:
        ConfigError: it names one that the machine does not have.
    """
    rows = [[cell.strip() for cell in line.split(",")] for line in listing.splitlines() if line.strip()]
    driver = rows[0][4] if rows else None
    by_name = {
        name: Gpu(name, model, int(float(mebibytes)) << 20)
        for index, uuid, model, mebibytes, _ in rows
        for name in (index, uuid)
    }
    if visible is None:
        return tuple(by_name[index] for index, *_ in rows), driver
    names = [name.strip() for name in visible.split(",") if name.strip()]
    if rows and (unknown := [name for name in names if name not in by_name and name != "-1"]):
        raise ConfigError(
            f"CUDA_VISIBLE_DEVICES names {', '.join(unknown)}, and this machine has the GPUs "
            f"{', '.join(index for index, *_ in rows)} (numbers, or whole UUIDs)"
        )
    return tuple(by_name[name] for name in names if name in by_name), driver


def require_driver(driver: str | None, cuda: str | None) -> None:
    """Raise ConfigError if the driver is too old for the CUDA that is installed."""
    oldest = _OLDEST_DRIVER.get(int(cuda.split(".")[0])) if cuda else None
    if driver and oldest and int(driver.split(".")[0]) < oldest:
        raise ConfigError(
            f"the driver of this machine's GPUs is {driver}, and the installed CUDA {cuda} needs {oldest} or later: "
            'update the driver, or set CUDA_VISIBLE_DEVICES="" to compute on the cores'
        )


def require_one_order(gpus: tuple[Gpu, ...], order: str | None) -> None:
    """Raise ConfigError where numbers of GPUs mean one thing to CUDA and another to its driver's tools."""
    if len({(gpu.model, gpu.memory_bytes) for gpu in gpus}) > 1 and order != "PCI_BUS_ID":
        models = ", ".join(sorted({gpu.model for gpu in gpus}))
        raise ConfigError(
            f"this machine has different GPUs ({models}), which CUDA numbers by speed: set CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )


def _listed_gpus() -> str:
    if shutil.which(_QUERY[0]) is None:
        if _CONTROL_DEVICE.exists():
            raise ConfigError(
                "this machine has NVIDIA GPUs, but no nvidia-smi to ask for them: in a container, run it with the "
                'driver capability "utility"'
            )
        return ""
    try:
        found = subprocess.run(_QUERY, capture_output=True, text=True, timeout=_QUERY_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"nvidia-smi gives no answer in {_QUERY_SECONDS:.0f} s: is the driver well?") from error
    if found.returncode == 6 or "No devices were found" in found.stdout:  # a driver without GPUs
        return ""
    if found.returncode != 0:
        raise ConfigError(f"nvidia-smi: {(found.stdout + found.stderr).strip()}")
    return found.stdout


def _installed_cuda() -> str | None:
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and seldom asked

    try:
        return version(_CUDA_RUNTIME)
    except PackageNotFoundError:
        return None


def _host_bytes() -> int:
    """The memory of the machine, or what its container allows of it."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CGROUP_LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdecimal() else total
