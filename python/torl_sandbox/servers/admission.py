"""Admission control and Prometheus metrics of a sandbox server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from torl_sandbox.errors import OutcomeStatus
from torl_sandbox.pool import SandboxPool

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Clients with a timeout of their own wait for at least 20 s longer than the time limit of a run.
_MIN_WALL_SECONDS = 20.0
_WALL_FACTOR = 2.5  # for a machine so busy that a run waits, or gets less than half of a core

_COUNTS = ("shared", "cancelled", "retried", "workers_replaced")


class OverloadedError(Exception):
    """A limit on pending requests or on the time of a request is reached. The client may try again."""


class Admission:
    """Limits on pending requests: excess requests are refused on arrival, admitted ones are answered.

    For one event loop.
    """

    def __init__(self, max_requests: int, max_bytes: int) -> None:
        """Set the limits on the number of pending requests and on the total size of their bodies."""
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self.requests = 0
        """Number of pending requests."""
        self.bytes = 0
        """Total size of their bodies."""
        self.refused = 0
        """Number of refused requests since the start."""

    @contextmanager
    def admit(self, body_bytes: int) -> Iterator[None]:
        """Admit a request with a body of the given size for the duration of the block.

        Raises:
            OverloadedError: A limit on the number or the size of pending requests is reached.
        """
        if self.requests >= self._max_requests:
            self.refused += 1
            raise OverloadedError(f"{self.requests} requests are pending, which is the maximum")
        if self.requests and self.bytes + body_bytes > self._max_bytes:  # single bodies have a separate limit
            self.refused += 1
            raise OverloadedError(
                f"pending requests have {self.bytes} bytes, and {body_bytes} more would exceed the maximum"
            )
        self.requests += 1
        self.bytes += body_bytes
        try:
            yield
        finally:
            self.requests -= 1
            self.bytes -= body_bytes


@asynccontextmanager
async def bounded_wall_time(cpu_seconds: float) -> AsyncIterator[None]:
    """Bound the wall time of the block, which waits for a run with the given CPU time limit and executes it.

    Raises:
        OverloadedError: The block took longer. It was cancelled.
    """
    seconds = max(_MIN_WALL_SECONDS, _WALL_FACTOR * cpu_seconds)
    timeout = asyncio.timeout(seconds)
    try:
        async with timeout:
            yield
    except TimeoutError as error:
        if not timeout.expired():
            raise
        raise OverloadedError(f"the run was not over after {seconds:g} s: it waited for other runs") from error


class ServerMetrics:
    """The metrics of a server and its pool. Numbers of the pool are read on request."""

    def __init__(self, pool: SandboxPool, admission: Admission) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "torl_sandbox_requests", "Answered requests, by path or tool and status.", ["path", "code"],
            registry=self._registry,
        )  # fmt: skip
        self._registry.register(_PoolCollector(pool))
        self._registry.register(_AdmissionCollector(admission))

    def count_response(self, path: str, code: int | str) -> None:
        """Count an answered request."""
        self._requests.labels(path, str(code)).inc()

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _AdmissionCollector(Collector):
    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("torl_sandbox_requests_open", "Pending requests.", self._admission.requests)
        yield GaugeMetricFamily("torl_sandbox_request_bytes_open", "Bytes of pending requests.", self._admission.bytes)
        yield CounterMetricFamily("torl_sandbox_refused", "Requests refused by a limit.", self._admission.refused)


class _PoolCollector(Collector):
    def __init__(self, pool: SandboxPool) -> None:
        self._pool = pool

    def collect(self) -> Iterator[Metric]:
        counts = self._pool.stats()
        runs = CounterMetricFamily("torl_sandbox_runs", "Executed runs, by outcome.", labels=["outcome"])
        for status in OutcomeStatus:
            runs.add_metric([status.value], counts[status.value])
        yield runs
        for name in _COUNTS:
            yield CounterMetricFamily(f"torl_sandbox_{name}", f"SandboxPool.stats: {name}.", counts[name])
        now = GaugeMetricFamily("torl_sandbox_runs_now", "Queued and running runs.", labels=["state"])
        for state in ("queued", "running"):
            now.add_metric([state], counts[state])
        yield now
        yield GaugeMetricFamily("torl_sandbox_workers", "Running worker processes.", len(self._pool.processes()))
        yield self._latency()

    def _latency(self) -> Metric:
        buckets: list[tuple[str, float]] = []
        runs = 0
        for bound, count in self._pool.latency():
            runs += count
            buckets.append((str(bound), runs))
        buckets.append(("+Inf", runs))
        text = "Seconds from the submission of a run to its outcome."
        return HistogramMetricFamily("torl_sandbox_run_seconds", text, buckets=buckets, sum_value=None)
