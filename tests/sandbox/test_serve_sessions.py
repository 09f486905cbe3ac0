"""Sessions that a server keeps for clients that hold their names."""

from collections.abc import Iterator

import pytest

from sandboxes import KEPT
from torl_sandbox import SandboxPool
from torl_sandbox.servers.sessions import SessionStore
from torl_sandbox.servers.settings import SessionSettings


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(1, **KEPT) as pool:
        yield pool


def test_the_one_unused_for_longest_goes(pool: SandboxPool) -> None:
    store = SessionStore(SessionSettings(2, 1024, 60))
    first, second = store.add(pool.session()), store.add(pool.session())
    assert store.get(first) is not None
    third = store.add(pool.session())
    assert [store.get(name) is not None for name in (first, second, third)] == [True, False, True]
    assert len(store) == 2


def test_idle_session_is_evicted(pool: SandboxPool) -> None:
    now = 0.0
    store = SessionStore(SessionSettings(9, 1024, 60), clock=lambda: now)
    first, second = store.add(pool.session()), store.add(pool.session())
    now = 59.0
    assert store.get(second) is not None
    now = 61.0
    assert store.get(first) is None
    assert store.get(second) is not None
    now = 200.0
    assert store.get(second) is None
    assert len(store) == 0


def test_states_are_bounded_together_but_the_one_in_use_stays(pool: SandboxPool) -> None:
    store = SessionStore(SessionSettings(9, 3, 60))
    names = []
    for _ in range(3):
        session = pool.session()
        session.run("x = bytearray(b'x' * (2 << 20))")
        assert session.state_bytes > 2 << 20
        names.append(store.add(session))
    assert [store.get(name) is not None for name in names] == [False, False, True]
    grown = store.get(names[2])
    assert grown is not None
    grown.run("y = bytearray(b'x' * (4 << 20))")
    store.evict()
    assert store.get(names[2]) is grown


def test_names_cannot_be_guessed(pool: SandboxPool) -> None:
    store = SessionStore(SessionSettings(1000, 1024, 60))
    names = {store.add(pool.session()) for _ in range(100)}
    assert len(names) == 100
    assert min(map(len, names)) >= 16
