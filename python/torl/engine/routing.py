"""Which of several engines samples an episode."""

from collections import Counter
from collections.abc import Collection

# A group's episodes leave the engine that holds their prompt when it has so many more episodes than the least loaded
# one: computing a prompt once more is cheap beside a response that waits for its place.
_UNEVEN_EPISODES = 8
_UNEVEN_SHARE = 0.25


class Router:
    """The engine of every episode that has begun: the one that it began on, where its prefix is cached.

    An episode begins where its group is, if that engine is not loaded much more than others, and on the least loaded
    one else. So the samples of a prompt share its computation, and episodes that begin late go to who is free.
    """

    def __init__(self) -> None:
        self._engines: dict[int, int] = {}  # by episode
        self._groups: dict[int, str] = {}  # by episode
        self._homes: dict[str, int] = {}  # by group
        self._open: Counter[str] = Counter()  # episodes of a group
        self._loads: Counter[int] = Counter()  # episodes of an engine

    def loads(self) -> dict[int, int]:
        """How many episodes have begun on each engine and not ended."""
        return dict(self._loads)

    def assigned_engine(self, episode: int) -> int | None:
        """Where an episode has begun."""
        return self._engines.get(episode)

    def route(self, episode: int, group: str, serving: Collection[int]) -> int:
        """The number of the engine that samples the next turn of an episode: one of `serving`, which is not empty."""
        engine = self._engines.get(episode)
        if engine is not None and engine in serving:
            return engine
        if engine is None:
            self._groups[episode] = group
            self._open[group] += 1
        else:  # it is gone
            self._loads[engine] -= 1
        engine = self._engines[episode] = self._begin(group, serving)
        self._loads[engine] += 1
        return engine

    def forget(self, episode: int) -> None:
        """The episode has ended. Does nothing for one that never began."""
        if (engine := self._engines.pop(episode, None)) is None:
            return
        self._loads[engine] -= 1
        group = self._groups.pop(episode)
        self._open[group] -= 1
        if self._open[group] == 0:
            del self._open[group]
            self._homes.pop(group, None)

    def _begin(self, group: str, serving: Collection[int]) -> int:
        least = min(serving, key=lambda engine: (self._loads[engine], engine))
        if not group:
            return least
        home = self._homes.get(group)
        if home is not None and home in serving:
            mean = sum(self._loads[engine] for engine in serving) / len(serving)
            if self._loads[home] - self._loads[least] < max(_UNEVEN_EPISODES, _UNEVEN_SHARE * mean):
                return home
        self._homes[group] = least
        return least
