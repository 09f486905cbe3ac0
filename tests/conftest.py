"""Fixtures of all tests."""

import pytest


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry at once: a retry of a test's server need not wait half a second."""
    monkeypatch.setattr("torl.tools.retry.INITIAL_BACKOFF_SECONDS", 0.001)
