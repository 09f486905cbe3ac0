"""Seconds in which the bytes of a step cross the network between nodes, by what their adapters carry."""

from torl.placement.ledger import Ledger

_MOVING = 0.8  # of the peak that well-made programs reach


def network_seconds(book: Ledger, carried: float, *, sample: float, episodes: int) -> float:
    """Of one step, as if nothing else hid them; 0 on one node.

    A ring over all ranks enters each node once, through the adapters of all its ranks: whatever is gathered from, or
    summed over, `n` nodes brings a share of (n - 1) / n of its bytes into each of them.

    Args:
        book: of the run.
        carried: bytes in a second that the adapter of one GPU carries, one way.
        sample: tokens of a trajectory, on average.
        episodes: trajectories of a step.
    """
    placement, learner = book.placement, book.learner
    nodes = len(set(placement.rank_nodes))
    speed = carried * _MOVING
    whole = learner.shape.parameters * learner.itemsize
    ring = whole * (nodes - 1) / nodes / (placement.ranks_of_node * speed)
    rows = -(-episodes * sample // (placement.ranks * learner.row_tokens))
    seconds = ring * _rings(book, rows)
    if not placement.colocated and len(placement.machine.nodes) > 1:
        seconds += whole / speed  # of one rank, through its own adapter, to the nodes that it feeds one after the other
    return float(seconds)


def _rings(book: Ledger, rows: float) -> float:
    """How often all parameters, or gradients of their size, go around in a step."""
    config = book.learner.config
    learner, algorithm = config.learner, config.algorithm
    forwards = rows * (algorithm.needs_old_logprobs + algorithm.needs_reference)
    updates = algorithm.updates
    backwards = rows * algorithm.epochs
    if algorithm.needs_critic:
        forwards, updates = forwards + rows, updates + config.critic.updates
        backwards += rows * config.critic.epochs
    if learner.zero_stage == 3:
        # Parameters for the forward, for the backward, and where activations are computed again; then the gradients.
        # Once more for the weights of the engine.
        return forwards + backwards * (3 + learner.gradient_checkpointing) + 1
    if learner.zero_stage == 2:
        return backwards + updates  # gradients of each row, parameters after each update
    return 2 * updates  # both once for each update
