"""Seconds of a step by what the hardware allows: arithmetic, memory, links. An order of magnitude, not measured."""

from dataclasses import dataclass

from torl.config import TrainConfig
from torl.placement.ledger import Ledger
from torl.placement.network import network_seconds


@dataclass(frozen=True, slots=True)
class Card:
    """What a GPU does in a second, from its maker's data sheet: dense bfloat16; bytes of memory and links, one way."""

    flops: float
    memory: float
    link: float
    """To other GPUs of the node."""
    host: float = 25e9
    """To CPU memory, page-locked."""
    network: float = 12.5e9
    """To other nodes: the adapter of one GPU. NVIDIA's DGX machines have 200 or 400 Gb/s for each."""


CARDS = {
    "B200": Card(2250e12, 8.0e12, 900e9, 50e9, 50e9),
    "H200": Card(989e12, 4.8e12, 450e9, network=50e9),
    "H100": Card(989e12, 3.35e12, 450e9, network=50e9),
    "A100": Card(312e12, 2.0e12, 300e9, network=25e9),
    "L40S": Card(362e12, 0.86e12, 25e9),
    "4090": Card(165e12, 1.0e12, 25e9),
}
"""By a word of the GPU's name."""

# Shares of the peaks that well-made programs reach.
_TRAINING = 0.4
_PREFILL = 0.5
_READING = 0.6
_MOVING = 0.8
_TOKEN_SECONDS = 0.002  # of a step of the engine that computes nothing


@dataclass(frozen=True, slots=True)
class Seconds:
    """The parts of one step."""

    rollout: float
    update: float
    handover: float
    """Moving states and waking, where both sides share GPUs."""
    weights: float
    network: float
    """Between nodes, for update and weights: as if nothing hid it."""
    step: float


def step_seconds(book: Ledger, card: Card, *, prompt: int, response: int) -> Seconds:
    """Of a run's step.

    Args:
        book: of the run.
        card: all its GPUs.
        prompt: tokens of a prompt, on average.
        response: tokens of a response, on average; the longest is the configured limit.
    """
    config = book.learner.config
    rollout = _rollout(book, card, prompt, response)
    update = _update(book, card, prompt + response)
    moved = sum(book.learner.optimizer().values()) + sum(book.learner.parameters().values())
    handover = 2 * moved / (card.host * _MOVING) if config.learner.offload_while_sampling else 0.0
    whole = book.learner.shape.parameters * book.learner.itemsize
    weights = whole / (card.link * _MOVING) + book.engine.weights / (card.memory * _MOVING)
    network = network_seconds(book, card.network, sample=prompt + response, episodes=_episodes(config))
    turns = rollout + update + handover + weights + network
    step = turns if book.placement.colocated else max(rollout, update + weights + network)
    return Seconds(rollout, update, handover, weights, network, step)


def _episodes(config: TrainConfig) -> int:
    return config.rollout.prompts_per_step * config.rollout.samples_per_prompt


def _rollout(book: Ledger, card: Card, prompt: int, response: int) -> float:
    """Every engine samples its share of the episodes; the longest of them bounds the number of steps from below."""
    config, shape, engine = book.learner.config, book.learner.shape, book.engine
    size = int(engine.options.tensor_parallel)
    mine = -(-_episodes(config) // book.placement.replicas)
    context = prompt + response
    at_once = max(1, min(mine, engine.options.max_sequences, engine.cache_tokens // context))
    read = engine.weights + at_once * context * engine.token_bytes
    computed = 2 * shape.parameters * at_once
    token = _TOKEN_SECONDS + max(read / (card.memory * _READING), computed / (size * card.flops * _PREFILL))
    prompts = 2 * shape.parameters * mine * prompt / (size * card.flops * _PREFILL)
    # The last, long responses are alone: their steps read the weights and little else.
    alone = _TOKEN_SECONDS + engine.weights / (card.memory * _READING)
    full = mine * response / at_once
    rest = max(0.0, config.rollout.max_response_tokens - full)
    return float(prompts + full * token + rest * alone)


def _update(book: Ledger, card: Card, sample: int) -> float:
    """Forward and backward of every token: six operations a parameter, two more where activations are recomputed."""
    config, shape = book.learner.config, book.learner.shape
    tokens = _episodes(config) * sample
    passes = 8 if config.learner.gradient_checkpointing else 6
    extra = 2 * (config.algorithm.needs_old_logprobs + config.algorithm.needs_reference)
    trained = (passes * config.algorithm.epochs + extra) * shape.parameters
    if config.algorithm.needs_critic:
        trained += (passes * config.critic.epochs + 2) * shape.trunk_parameters
    return tokens * trained / (book.placement.ranks * card.flops * _TRAINING)
