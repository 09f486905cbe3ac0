"""What an episode needs of a tool."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self

from torl.runtime.cluster import Cluster
from torl.types import Outcome


class ToolSession(Protocol):
    """A tool as one episode sees it: calls one after the other, each with what those before it left."""

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        """Answer a call. What the model did wrong is an outcome.

        Raises:
            ToolUnavailableError: there is no outcome this time. The call is made again, in another fork of the session;
                in the end its episode is left out of what is learned from.
            TorlError: the host is broken; the run stops.
        """
        ...

    def fork(self) -> Self:
        """Another session that continues from where this one is.

        One that keeps nothing from call to call returns itself: its calls may run side by side.
        """
        return self


class Tool(Protocol):
    '''Something that a model may call. One object serves all episodes of a run. A whole one:

        import json
        from collections.abc import Mapping
        from pathlib import Path
        from typing import Any, Self

        import torl
        from torl import Outcome, OutcomeStatus

        class Dictionary(torl.Tool):
            """Looks words up."""

            description = "The meaning of a word."
            parameters = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}

            def __init__(self, path: str) -> None:
                self.meanings = json.loads(Path(path).read_text())

            def session(self, seed: int) -> Self:
                return self

            async def call(self, arguments: Mapping[str, Any]) -> Outcome:
                meaning = self.meanings.get(arguments["word"])
                if meaning is None:
                    return Outcome(OutcomeStatus.ERROR, "there is no such word", error="UnknownWord")
                return Outcome(OutcomeStatus.OK, meaning)

            def fork(self) -> Self:
                return self

        [rollout.tools.dictionary]
        name = "my_package.tools:Dictionary"
        path = "words.json"

    The key of the section is what a format calls it by. The parameters of its `__init__` are its options.
    '''

    description: str
    """What it does, for a model."""
    parameters: Mapping[str, Any]
    """JSON schema of its arguments."""
    speculative: bool = False
    """Whether a call may begin before it is asked for, in a fork of the session, and be given up (cancelled)."""
    has_own_limits: bool = False
    """Whether the tool has limits of its own in the place of those that `torl.tools.bounded` puts around any other."""

    def session(self, seed: int) -> ToolSession:
        """The tool for one episode. Equal seeds, for episodes of one problem, give equal outcomes for equal calls."""
        ...

    def provided_tools(self, name: str) -> "Mapping[str, Tool]":
        """What a model may call, also before the start: itself by the name of its section, or several by theirs."""
        return {name: self}

    def use_cluster(self, cluster: Cluster) -> None:
        """Told before `start` where the run is. A tool that does not use the nodes stays with the controller."""
        return

    async def start(self, on_progress: Callable[[str, float], object] | None = None) -> None:
        """Start what the tool needs, once, before the first session; raises a `TorlError` if it does not work.

        `on_progress(stage, share done)` may be called from any thread, by a tool whose start takes long.
        """
        return

    async def close(self) -> None:
        """End what `start` started; also after a `start` that failed."""
        return

    async def check(self) -> None:
        """Raise a `TorlError` if the tool no longer works; called after each step of a training run."""
        return

    def metrics(self) -> Mapping[str, float]:
        """Counts since the start, by name, for the records of a run."""
        return {}


class StatelessTool(Tool, ToolSession):
    """A tool that keeps nothing of an episode: it is the session of all of them."""

    def session(self, seed: int) -> Self:
        """Itself."""
        return self
