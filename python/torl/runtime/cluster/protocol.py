"""What a run needs of the machines that it is on: start a role there, talk to it, watch it, end it."""

from collections.abc import AsyncGenerator, Callable
from typing import Any, NoReturn, Protocol, TypeVar

Result = TypeVar("Result")


class ActorHandle(Protocol):
    """An object on a node of a cluster, as the controller sees it.

    Every method raises `ActorDiedError` when the process of the object or its node is gone. What a method of the object
    raises comes as it is, if it is a `TorlError`.
    """

    name: str
    """As errors call it."""
    node: int
    """Where it is."""

    async def call(self, method: str, *arguments: Any) -> Any:
        """What a coroutine method of the object returns. Cancelling the call cancels the method."""
        ...

    def stream(self, method: str, *arguments: Any) -> AsyncGenerator[Any, None]:
        """What an asynchronous generator of the object gives. Closing the iterator closes the generator."""
        ...

    async def watch(self) -> NoReturn:
        """Wait until the object is gone, then raise `ActorDiedError`."""
        ...

    async def kill(self) -> None:
        """End it and every process that it has started, by force. Safe to call twice, and when it is gone."""
        ...


class Cluster(Protocol):
    """The nodes of a run, numbered from 0. A node that is lost keeps its number for a machine that takes its place.

    The class is made with the section `[cluster]` of the configuration (`torl.runtime.cluster.ClusterConfig`).
    """

    @property
    def is_remote(self) -> bool:
        """Whether roles are other processes, perhaps of other machines: what is not apart needs no role."""
        return True

    @property
    def is_this_machine(self) -> bool:
        """Whether its one node is that of this process, so that a run needs no roles: it starts processes itself."""
        return False

    @property
    def nodes(self) -> int:
        """How many there are, those that are lost included."""
        return 1

    async def start(self) -> None:
        """Reach the nodes and take hold of them.

        Raises:
            ClusterError: they are not there, or others have them.
        """
        return

    async def run_on(self, node: int, function: Callable[..., Result], *arguments: Any) -> Result:
        """What a function returns on a node; it is picklable, and so are its arguments and its result.

        Raises:
            ActorDiedError: the node was lost meanwhile.
        """
        ...

    async def node_address(self, node: int) -> str:
        """The address at which the other nodes find a node."""
        return "127.0.0.1"

    @property
    def controller_address(self) -> str:
        """The address at which the nodes find this process."""
        return "127.0.0.1"

    async def start_actor(self, node: int, make: Callable[[], object], *, name: str) -> ActorHandle:
        """Make an object on a node; waits while the node is lost.

        Args:
            node: where.
            make: picklable; called there, in an event loop that lives as long as the object.
            name: as errors call it.

        Raises:
            ActorDiedError: the node was lost meanwhile.
        """
        ...

    async def close(self) -> None:
        """Let go of the nodes; every role that is left ends. Safe to call twice."""
        return
