"""The section of a configuration that says what machines a run is on."""

from torl.options import NonNegativeInt, PositiveFloat, PositiveInt, Section


class ClusterConfig(Section):
    """The machines of a run. docs/clusters.md has the commands."""

    kind: str = "local"
    """"local": this machine, by processes of this one. "ray": the nodes of a Ray cluster. Or package.module:Name."""
    address: str = "auto"
    """Of a Ray cluster: "auto" for the one that this machine is a node of, "local" to start one here for this run
    alone, or HOST:PORT of its head."""
    nodes: PositiveInt | None = None
    """How many nodes the run takes; all that have as many GPUs as the best of them when unset."""
    startup_timeout_seconds: PositiveFloat = 300.0
    """Longest wait for the nodes to be there and free."""
    max_restarts: NonNegativeInt = 2
    """How often a run goes on from its last checkpoint by itself when it has lost learner ranks with their node."""
