"""Seconds of a step by the roofline: what the data sheets of the GPUs allow. An estimate that nothing has measured."""

from dataclasses import dataclass

from torl.placement.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Card:
    """Peaks of a GPU in a second, from its maker's data sheet."""

    flops: float
    """Operations in dense bfloat16."""
    memory: float
    """Bytes of its memory."""


CARDS = {
    "B200": Card(2250e12, 8.0e12),
    "H200": Card(989e12, 4.8e12),
    "H100": Card(989e12, 3.35e12),
    "A100": Card(312e12, 2.0e12),
    "L40S": Card(362e12, 0.86e12),
    "4090": Card(165e12, 1.0e12),
}
"""By a word of the GPU's name."""


def step_seconds(memory_ledger: Ledger, card: Card, *, prompt: int, response: int) -> float:
    """Rollout and update of a step at the peaks of `card`, with prompts and responses of these mean lengths in tokens.

    Moves of states and weights and the network are left out.
    """
    config, engine = memory_ledger.learner.config, memory_ledger.engine
    learner, algorithm, parameters = config.learner, config.algorithm, memory_ledger.learner.shape.parameters
    episodes = config.rollout.prompts_per_step * config.rollout.samples_per_prompt
    mine = -(-episodes // memory_ledger.placement.replicas)  # of one engine
    at_once = max(1, min(mine, engine.options.max_sequences, engine.cache_tokens // (prompt + response)))
    read = engine.weights + at_once * (prompt + response) * engine.token_bytes
    token = 2 * parameters / (engine.options.tensor_parallel * card.flops)
    rollout = mine * prompt * token + mine * response * max(read / card.memory / at_once, token)
    # Six operations a parameter for forward and backward, two more for each further forward.
    passes = 8 if learner.gradient_checkpointing else 6
    trained = (passes * algorithm.epochs + 2 * (algorithm.needs_old_logprobs + algorithm.needs_reference)) * parameters
    if algorithm.needs_critic:
        trained += (passes * config.critic.epochs + 2) * memory_ledger.learner.shape.trunk_parameters
    update = episodes * (prompt + response) * trained / (memory_ledger.placement.ranks * card.flops)
    return float(rollout + update if memory_ledger.placement.colocated else max(rollout, update))
