"""Devices in words."""

from collections.abc import Sequence

from torl.placement.machine import Machine


def counted(count: int, machine: Machine) -> str:
    """Like "3 GPUs"."""
    return f"{count} {machine.device}{'' if count == 1 else 's'}"


def join_or(each: Sequence[int]) -> str:
    """Like "1, 2 or 4"."""
    *others, last = map(str, each)
    return f"{', '.join(others)} or {last}" if others else last


def format_ranges(devices: Sequence[int]) -> str:
    """Like "0-3,6"."""
    parts: list[str] = []
    for device in sorted(devices):
        first, _, last = parts[-1].partition("-") if parts else ("", "", "")
        if parts and int(last or first) == device - 1:
            parts[-1] = f"{first}-{device}"
        else:
            parts.append(str(device))
    return ",".join(parts)
