"""The wall time of a request, in which it waits for a worker."""

import asyncio

import pytest

from torl_sandbox.servers import admission
from torl_sandbox.servers.admission import OverloadedError, bounded_wall_time


@pytest.mark.parametrize(("cpu_seconds", "said"), [(0.01, "after 0.05 s"), (0.04, "after 0.1 s")])
async def test_it_grows_with_the_time_limit(monkeypatch: pytest.MonkeyPatch, cpu_seconds: float, said: str) -> None:
    monkeypatch.setattr(admission, "_MIN_WALL_SECONDS", 0.05)
    with pytest.raises(OverloadedError, match=said):
        async with bounded_wall_time(cpu_seconds):
            await asyncio.Future()


async def test_a_timeout_inside_of_the_request_is_not_overload() -> None:
    with pytest.raises(TimeoutError, match="of something else"):
        async with bounded_wall_time(1.0):
            raise TimeoutError("of something else")
