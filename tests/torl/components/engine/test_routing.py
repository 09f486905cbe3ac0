"""Routing of episodes: the samples of a prompt on one engine, even loads, new places after an engine is lost."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from torl.components.engine.routing import Router

ALL = range(4)


def test_the_samples_of_a_prompt_share_an_engine_and_prompts_are_shared_out() -> None:
    routes = Router()
    engines = [[routes.route(8 * group + sample, str(group), ALL) for sample in range(8)] for group in range(16)]
    assert all(len(set(group)) == 1 for group in engines)
    assert routes.loads() == dict.fromkeys(ALL, 32)


def test_an_episode_stays_where_it_began() -> None:
    routes = Router()
    first = [routes.route(episode, "", ALL) for episode in range(20)]
    assert [routes.route(episode, "", ALL) for episode in range(20)] == first


def test_a_large_group_does_not_crowd_one_engine() -> None:
    routes = Router()
    for episode in range(64):
        routes.route(episode, "the only prompt", ALL)
    assert max(routes.loads().values()) - min(routes.loads().values()) <= 8


def test_late_episodes_go_to_the_least_loaded_engine() -> None:
    """Long episodes on one engine, all others ended: the rest of a group goes elsewhere."""
    routes = Router()
    home = routes.route(0, "a", ALL)
    for episode in range(1, 8):
        assert routes.route(episode, "a", ALL) == home
    assert routes.route(8, "a", ALL) != home


def test_episodes_of_lost_engine_are_redistributed_and_stay() -> None:
    routes = Router()
    before = {episode: routes.route(episode, str(episode // 8), ALL) for episode in range(64)}
    left = [1, 2, 3]
    after = {episode: routes.route(episode, str(episode // 8), left) for episode in range(64)}
    assert all(after[episode] == before[episode] for episode in before if before[episode] != 0)
    assert all(after[episode] in left for episode in before)
    assert {episode: routes.route(episode, str(episode // 8), ALL) for episode in range(64)} == after
    for episode in range(64):
        routes.forget(episode)
        routes.forget(episode)
    assert set(routes.loads().values()) == {0}


@given(
    st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.sets(st.integers(0, 3), min_size=1)), max_size=200),
    st.integers(1, 16),
)
def test_loads_are_counted_right_and_stay_even_where_episodes_begin(
    events: list[tuple[int, bool, set[int]]], samples: int
) -> None:
    routes = Router()
    open_on: dict[int, int] = {}
    for episode, ends, serving in events:
        if ends:
            routes.forget(episode)
            open_on.pop(episode, None)
            continue
        moves = open_on.get(episode) not in serving
        open_on.pop(episode, None) if moves else None
        loads = Counter(open_on.values())
        engine = routes.route(episode, str(episode // samples), serving)
        assert engine in serving
        if moves:
            mean = sum(loads[each] for each in serving) / len(serving)
            assert loads[engine] - min(loads[each] for each in serving) < max(8, mean / 4)
        open_on[episode] = engine
        assert +Counter(routes.loads()) == Counter(open_on.values())
