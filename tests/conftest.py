"""Fixtures of all tests. The sandbox's also run where torl is not installed."""

from importlib.util import find_spec

import pytest
from hypothesis import settings

# A limit on the time of an example fails by chance where the cores have other work.
settings.register_profile("without deadlines", parent=settings(), deadline=None)
settings.load_profile("without deadlines")


if find_spec("torl") is not None:
    pytest_plugins = ["shared_fixtures"]


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry at once: a retry of a test's server need not wait half a second."""
    if find_spec("torl") is not None:
        monkeypatch.setattr("torl.components.tools.retry.INITIAL_BACKOFF_SECONDS", 0.001)
