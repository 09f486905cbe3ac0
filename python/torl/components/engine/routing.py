"""Routing of episodes to replicas."""

from collections import Counter
from collections.abc import Collection

# A group moves to the least loaded engine when its engine has this many more episodes, or this fraction of the mean:
# recomputing a prompt is cheap compared to a response that waits in a queue.
_MAX_IMBALANCE = 8
_MAX_IMBALANCE_FRACTION = 0.25


class Router:
    """The engine of every started episode: the engine on which it started and its prefix is cached.

    An episode starts on the engine of its group unless that engine is much more loaded than others, and else on the
    least loaded engine. The samples of a prompt share its computation, and late episodes go to free engines.
    """

    def __init__(self) -> None:
        self._engines: dict[int, int] = {}  # by episode
        self._groups: dict[int, str] = {}  # by episode
        self._homes: dict[str, int] = {}  # by group
        self._open: Counter[str] = Counter()  # episodes of a group
        self._loads: Counter[int] = Counter()  # episodes of an engine

    def loads(self) -> dict[int, int]:
        """Number of episodes on each engine that have started and not ended."""
        return dict(self._loads)

    def assigned_engine(self, episode: int) -> int | None:
        """The engine of an episode, or None before its first turn."""
        return self._engines.get(episode)

    def route(self, episode: int, group: str, serving: Collection[int]) -> int:
        """Choose the engine for the next turn of an episode among `serving`, which is not empty."""
        engine = self._engines.get(episode)
        if engine is not None and engine in serving:
            return engine
        if engine is None:
            self._groups[episode] = group
            self._open[group] += 1
        else:  # the engine died
            self._loads[engine] -= 1
        engine = self._engines[episode] = self._choose(group, serving)
        self._loads[engine] += 1
        return engine

    def forget(self, episode: int) -> None:
        """Forget an episode that has ended, if it ever started."""
        if (engine := self._engines.pop(episode, None)) is None:
            return
        self._loads[engine] -= 1
        group = self._groups.pop(episode)
        self._open[group] -= 1
        if self._open[group] == 0:
            del self._open[group]
            self._homes.pop(group, None)

    def _choose(self, group: str, serving: Collection[int]) -> int:
        least = min(serving, key=lambda engine: (self._loads[engine], engine))
        if not group:
            return least
        home = self._homes.get(group)
        if home is not None and home in serving:
            mean = sum(self._loads[engine] for engine in serving) / len(serving)
            if self._loads[home] - self._loads[least] < max(_MAX_IMBALANCE, _MAX_IMBALANCE_FRACTION * mean):
                return home
        self._homes[group] = least
        return least
