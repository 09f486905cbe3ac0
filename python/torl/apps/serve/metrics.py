"""What a door counts, for Prometheus: its own requests, and the pool behind it."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from torl.apps.serve.admission import Admission
from torl.sandbox.pool import SandboxPool
from torl.types import OutcomeStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_COUNTS = ("shared", "cancelled", "retried", "workers_replaced")


class ServerMetrics:
    """The numbers of one door. The pool's own are read when they are asked for."""

    def __init__(self, pool: SandboxPool, admission: Admission) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "torl_sandbox_requests", "Requests answered, by path or tool, and status.", ["path", "code"],
            registry=self._registry,
        )  # fmt: skip
        self._registry.register(_PoolCollector(pool))
        self._registry.register(_AdmissionCollector(admission))

    def answered(self, path: str, code: int | str) -> None:
        """Count a request that was answered."""
        self._requests.labels(path, str(code)).inc()

    def text(self) -> bytes:
        """All of them, in Prometheus's text format."""
        return generate_latest(self._registry)


class _AdmissionCollector(Collector):
    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def collect(self) -> Iterator[Metric]:
        accepted = "Requests accepted and not answered yet"
        yield GaugeMetricFamily("torl_sandbox_requests_open", f"{accepted}.", self._admission.requests)
        yield GaugeMetricFamily("torl_sandbox_request_bytes_open", f"{accepted}: bytes.", self._admission.bytes)
        yield CounterMetricFamily("torl_sandbox_refused", "Requests refused for want of room.", self._admission.refused)


class _PoolCollector(Collector):
    def __init__(self, pool: SandboxPool) -> None:
        self._pool = pool

    def collect(self) -> Iterator[Metric]:
        counts = self._pool.stats()
        runs = CounterMetricFamily("torl_sandbox_runs", "Runs that were executed, by outcome.", labels=["outcome"])
        for status in OutcomeStatus:
            runs.add_metric([status.value], counts[status.value])
        yield runs
        for name in _COUNTS:
            yield CounterMetricFamily(f"torl_sandbox_{name}", f"SandboxPool.stats: {name}.", counts[name])
        now = GaugeMetricFamily("torl_sandbox_runs_now", "Runs that wait for a worker or have one.", labels=["state"])
        for state in ("queued", "running"):
            now.add_metric([state], counts[state])
        yield now
        yield GaugeMetricFamily("torl_sandbox_workers", "Worker processes alive.", len(self._pool.processes()))
        yield self._latency()

    def _latency(self) -> Metric:
        buckets: list[tuple[str, float]] = []
        runs = 0
        for bound, count in self._pool.latency():
            runs += count
            buckets.append((str(bound), runs))
        buckets.append(("+Inf", runs))
        text = "Seconds from a run's submission to its outcome."
        return HistogramMetricFamily("torl_sandbox_run_seconds", text, buckets=buckets, sum_value=None)
