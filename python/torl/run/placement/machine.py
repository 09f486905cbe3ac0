"""The devices of a machine, read in less than a second without loading a library that allocates GPU memory."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torl.base.errors import ConfigError
from torl.run.placement.gpus import Gpu, installed_cuda, list_gpus, require_driver, require_one_order, visible_gpus

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_CPU_INFO = Path("/proc/cpuinfo")
_MEMORY_INFO = Path("/proc/meminfo")
# With one of these sets, oneDNN, which computes torch's matrix products, has instructions for bfloat16.
_HAVE_BFLOAT16 = ({"avx512bw", "avx512dq", "avx512vl"}, {"avx_ne_convert"}, {"bf16"})


@dataclass(frozen=True, slots=True)
class Machine:
    """The devices and the memory of a machine, or of all nodes of a cluster.

    Attributes:
        gpus: Visible GPUs. Without GPUs, everything computes on the cores.
        cores: Number of CPU cores.
        host_bytes: Size of the CPU memory.
        driver: Version of the GPU driver.
        nodes: Number of devices of each node of a cluster, in order. Empty for a single machine.
        emulates_bfloat16: Whether cores of a node have no instructions for bfloat16.
        host_used_bytes: CPU memory in use by other programs.
    """

    gpus: tuple[Gpu, ...]
    cores: int
    host_bytes: int
    driver: str | None = None
    nodes: tuple[int, ...] = ()
    emulates_bfloat16: bool = False
    host_used_bytes: int = 0

    @classmethod
    def with_gpus(cls, count: int, memory_bytes: int, *, cores: int = 16, host_bytes: int = 10**12) -> "Machine":
        """Describe a hypothetical machine with equal GPUs."""
        gpus = tuple(Gpu(str(number), "GPU", memory_bytes) for number in range(count))
        return cls(gpus, cores, host_bytes)

    @property
    def device(self) -> str:
        """Kind of its devices in messages: "GPU" or "core"."""
        return "GPU" if self.gpus else "core"

    @property
    def devices(self) -> int:
        """Number of its devices."""
        return len(self.gpus) or self.cores

    def node_of(self, device: int) -> tuple[int, int]:
        """Return the node of a device, and the number of the device on that node."""
        for node, count in enumerate(self.nodes or (self.devices,)):
            if device < count:
                return node, device
            device -= count
        raise ValueError(f"there are {self.devices} devices")

    def count_devices(self, count: int) -> str:
        """Format a number of devices, as in "3 GPUs"."""
        return f"{count} {self.device}{'' if count == 1 else 's'}"


def join_or(numbers: Sequence[int]) -> str:
    """Format alternatives, as in "1, 2 or 4"."""
    *others, last = map(str, numbers)
    return f"{', '.join(others)} or {last}" if others else last


def format_ranges(devices: Sequence[int]) -> str:
    """Format device numbers, as in "0-3,6"."""
    parts: list[str] = []
    for device in sorted(devices):
        first, _, last = parts[-1].partition("-") if parts else ("", "", "")
        if parts and int(last or first) == device - 1:
            parts[-1] = f"{first}-{device}"
        else:
            parts.append(str(device))
    return ",".join(parts)


def combine_machines(machines: Sequence[Machine]) -> Machine:
    """Combine the nodes of a cluster into one machine, with devices numbered from the first node to the last.

    Raises:
        ConfigError: Only some of the nodes have GPUs.
    """
    if len(machines) == 1:
        return machines[0]
    counts = tuple(len(machine.gpus) for machine in machines)
    if any(counts) and not all(counts):
        raise ConfigError(
            f"of {len(machines)} nodes {sum(count == 0 for count in counts)} have no GPU that can be used: leave them "
            "out of the cluster (cluster.nodes), or check nvidia-smi and CUDA_VISIBLE_DEVICES there"
        )
    return Machine(
        gpus=tuple(gpu for machine in machines for gpu in machine.gpus),
        cores=sum(machine.cores for machine in machines),
        host_bytes=sum(machine.host_bytes for machine in machines),
        driver=machines[0].driver,
        nodes=counts if any(counts) else tuple(machine.cores for machine in machines),
        emulates_bfloat16=any(machine.emulates_bfloat16 for machine in machines),
        host_used_bytes=sum(machine.host_used_bytes for machine in machines),
    )


def this_machine(environment: Mapping[str, str] = os.environ) -> Machine:
    """Describe the machine of this process.

    Raises:
        ConfigError: The machine has GPUs that cannot be used in its present state.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    hidden = visible is not None and visible.strip() in ("", "-1")
    gpus, driver = visible_gpus("" if hidden else list_gpus(), visible)
    if gpus:
        require_driver(driver, installed_cuda())
        require_one_order(gpus, environment.get("CUDA_DEVICE_ORDER"))
    host_bytes = _host_bytes()
    return Machine(
        gpus,
        len(os.sched_getaffinity(0)),
        host_bytes,
        driver if gpus else None,
        emulates_bfloat16=emulates_bfloat16(_CPU_INFO.read_text(encoding="utf-8")),
        host_used_bytes=max(0, host_bytes - available_bytes(_MEMORY_INFO.read_text(encoding="ascii"))),
    )


def emulates_bfloat16(cpu_info: str) -> bool:
    """Whether cores with this /proc/cpuinfo have no instructions for bfloat16.

    Their products of matrices then take several times as long as in float32: 5 to 8 times on an AMD EPYC with AVX2.
    """
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", cpu_info, flags=re.MULTILINE)
    return flags is not None and not any(needed <= {*flags.group(1).split()} for needed in _HAVE_BFLOAT16)


def available_bytes(memory_info: str) -> int:
    """Parse /proc/meminfo; returns the memory that programs can allocate without swapping."""
    available = re.search(r"^MemAvailable:\s*(\d+) kB$", memory_info, flags=re.MULTILINE)
    assert available is not None  # since Linux 3.14
    return int(available.group(1)) << 10


def _host_bytes() -> int:
    """Return the memory of the machine, or the memory limit of its container."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CGROUP_LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdecimal() else total
