"""Slow, literal restatements of the native kernels, for the tests to compare with. Written for clarity only."""

import re
import statistics
from dataclasses import dataclass
from math import exp, log


@dataclass(frozen=True)
class ReferenceBlock:
    """A closed block in the bytes of a turn; `end` is one past the third backtick of its closing line."""

    code: bytes
    start: int
    stop: int
    end: int


@dataclass(frozen=True)
class ReferenceScan:
    """Markers, fences and blocks found in the bytes of one turn."""

    blocks: list[ReferenceBlock]
    marker: tuple[int, int, bool] | None  # start, stop, inside a block


def scan_bytes(
    text: bytes, marker: bytes | None, at_line_start: bool = True, stop_at_block: bool = False
) -> ReferenceScan:
    """Look at a whole turn at once: cut it after the first marker, then walk over its lines."""
    place = text.find(marker) if marker is not None else -1
    if marker is not None and place >= 0:
        text = text[: place + len(marker)]
    blocks: list[ReferenceBlock] = []
    opened: int | None = None
    offset = 0
    for number, line in enumerate(_lines(text)):
        if line.startswith(b"```") and (number > 0 or at_line_start):
            if opened is not None:
                blocks.append(ReferenceBlock(text[opened:offset], opened, offset, offset + 3))
                opened = None
            if line.endswith(b"\n") and line.rstrip(b" \t\r\n") == b"```python":
                opened = offset + len(line)
        offset += len(line)
    found = None if place < 0 or marker is None else (place, place + len(marker), opened is not None)
    return ReferenceScan(blocks[:1] if stop_at_block else blocks, found)


def fenced_blocks(text: bytes, fences: str, at_line_start: bool = True) -> list[ReferenceBlock]:
    """The blocks of a whole turn by other fences than its lines: "line_ends" or "anywhere"."""
    if fences == "anywhere":
        found = re.finditer(rb"```python(.*?)```", text, re.DOTALL)
        return [ReferenceBlock(match[1], match.start(1), match.end(1), match.end()) for match in found]
    blocks: list[ReferenceBlock] = []
    opened: int | None = None
    offset = 0
    for number, line in enumerate(_lines(text)):
        begins = number > 0 or at_line_start
        if begins and line.startswith(b"```") and opened is not None:
            blocks.append(ReferenceBlock(text[opened:offset], opened, offset, offset + 3))
            opened = None
        offset += len(line)
        if line.endswith(b"```python\n") or (begins and line.startswith(b"```python") and line.endswith(b"\n")):
            opened = offset
    return blocks


def first_stop(text: bytes, stops: list[bytes]) -> tuple[int, int] | None:
    """The place of the stop string that ends first; of those that end together, the longest."""
    places = [(place + len(stop), place) for stop in stops if (place := text.find(stop)) >= 0]
    return None if not places else (min(places)[1], min(places)[0])


def _lines(text: bytes) -> list[bytes]:
    """Lines with their newline; only a newline ends a line."""
    pieces = text.split(b"\n")
    return [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def token_at(tokens: list[bytes], offset: int) -> tuple[int, bytes]:
    """The index of the token that holds byte `offset`, and what the token holds after that byte."""
    position = 0
    for index, token in enumerate(tokens):
        if offset < position + len(token):
            return index, token[offset - position + 1 :]
        position += len(token)
    raise IndexError(offset)


def first_fit_decreasing(lengths: list[int], capacity: int) -> int:
    """How many rows first-fit decreasing needs."""
    free: list[int] = []
    for length in sorted(lengths, reverse=True):
        for row, space in enumerate(free):
            if length <= space:
                free[row] -= length
                break
        else:
            free.append(capacity - length)
    return len(free)


def group_advantages(estimator: str, rewards: list[float], groups: list[int]) -> list[float]:
    """The formulas of the papers, one trajectory at a time."""
    advantages = []
    for index, reward in enumerate(rewards):
        members = [other for other, group in zip(rewards, groups, strict=True) if group == groups[index]]
        others = [
            other
            for place, (other, group) in enumerate(zip(rewards, groups, strict=True))
            if group == groups[index] and place != index
        ]
        if estimator == "grpo":
            mean, deviation = (statistics.fmean(members), statistics.stdev(members)) if others else (0.0, 1.0)
            advantages.append((reward - mean) / (deviation + 1e-6))
        elif estimator == "dr_grpo":
            advantages.append(reward - (statistics.fmean(members) if others else 0.0))
        elif estimator == "rloo":
            advantages.append(reward - (statistics.fmean(others) if others else 0.0))
        else:
            raise ValueError(estimator)
    return advantages


@dataclass(frozen=True)
class ReferenceToken:
    """The loss' inputs for one sampled token; `sequence` names its trajectory."""

    sequence: int
    logprob: float
    old_logprob: float
    advantage: float
    rollout_logprob: float = 0.0
    ref_logprob: float = 0.0


def policy_loss(
    name: str, tokens: list[ReferenceToken], clip_low: float, clip_high: float, dual_clip: float | None = None
) -> list[float]:
    """The loss of each token, by the formulas of `algorithms/losses.py`, one token at a time."""
    losses = []
    for token in tokens:
        if name == "gspo":
            own = [other for other in tokens if other.sequence == token.sequence]
            ratio = exp(sum(other.logprob - other.old_logprob for other in own) / len(own))
        else:
            ratio = exp(token.logprob - token.old_logprob)
        clipped = min(max(ratio, 1 - clip_low), 1 + clip_high)
        if name == "cispo":
            objective = clipped * token.advantage * token.logprob
        elif name == "reinforce":
            objective = token.advantage * token.logprob
        else:
            objective = min(ratio * token.advantage, clipped * token.advantage)
            if dual_clip is not None and token.advantage < 0:
                objective = max(objective, dual_clip * token.advantage)
        losses.append(-objective)
    return losses


def importance_weights(correction: str, tokens: list[ReferenceToken], low: float, high: float) -> list[float]:
    """min(w, high), w or 0, and the product of w over the sequence or 0."""
    weights = []
    for token in tokens:
        weight = exp(token.old_logprob - token.rollout_logprob)
        if correction == "mis":
            weight = 1.0
            for other in tokens:
                if other.sequence == token.sequence:
                    weight *= exp(other.old_logprob - other.rollout_logprob)
        if correction == "tis":
            weights.append(min(weight, high))
        else:
            weights.append(weight if low <= weight <= high else 0.0)
    return weights


def kl_to_reference(estimator: str, token: ReferenceToken) -> float:
    """Schulman's three."""
    ratio = exp(token.ref_logprob - token.logprob)
    if estimator == "k1":
        return -log(ratio)
    return log(ratio) ** 2 / 2 if estimator == "k2" else ratio - 1 - log(ratio)


def aggregate(aggregation: str, sequences: list[int], losses: list[float], fixed_length: int) -> float:
    """The loss of a batch from the losses of its sampled tokens."""
    if aggregation == "token":
        return statistics.fmean(losses)
    of_sequence: dict[int, list[float]] = {name: [] for name in sequences}
    for name, loss in zip(sequences, losses, strict=True):
        of_sequence[name].append(loss)
    if aggregation == "sequence":
        return statistics.fmean(statistics.fmean(own) for own in of_sequence.values())
    return statistics.fmean(sum(own) / fixed_length for own in of_sequence.values())


def value_loss(value: float, old_value: float, target: float, clip: float | None) -> float:
    """Half the larger of two squared errors."""
    errors = [(value - target) ** 2]
    if clip is not None:
        errors.append((min(max(value, old_value - clip), old_value + clip) - target) ** 2)
    return max(errors) / 2


def discounted_returns(
    reward: float, token_rewards: list[float], mask: list[bool], discount: float
) -> list[float | None]:
    """The returns of one trajectory, each summed up alone; None for tokens that were not sampled."""
    places = [place for place, sampled in enumerate(mask) if sampled]
    arriving = [token_rewards[place] for place in places]
    if arriving:
        arriving[-1] += reward
    returns: list[float | None] = [None] * len(mask)
    for k, place in enumerate(places):
        returns[place] = sum(discount ** (j - k) * arriving[j] for j in range(k, len(places)))
    return returns


def generalized_advantages(
    reward: float, token_rewards: list[float], values: list[float], mask: list[bool], discount: float, gae_lambda: float
) -> list[float | None]:
    """Advantages of one trajectory: A_k = sum over l of (discount * lambda)^l * d_(k+l), equation 16 of GAE."""
    places = [place for place, sampled in enumerate(mask) if sampled]
    arriving = [token_rewards[place] for place in places]
    if arriving:
        arriving[-1] += reward
    following = [values[place] for place in places[1:]] + [0.0]
    errors = [arriving[k] + discount * following[k] - values[place] for k, place in enumerate(places)]
    advantages: list[float | None] = [None] * len(mask)
    for k, place in enumerate(places):
        advantages[place] = sum((discount * gae_lambda) ** (j - k) * errors[j] for j in range(k, len(places)))
    return advantages


def discounted_turn_returns(
    reward: float, turn_rewards: list[float], mask: list[bool], discount: float
) -> list[float | None]:
    """The returns of one trajectory, from the rewards of its turns: each token is rewarded for later turns.

    A turn is a run of sampled tokens. Its reward is discounted by the sampled tokens between.
    """
    turns = _turns(mask)
    payments = [(own[-1], rewarded) for own, rewarded in zip(turns, turn_rewards, strict=True)]
    places = [place for own in turns for place in own]
    if places:
        payments.append((places[-1], reward))
    returns: list[float | None] = [None] * len(mask)
    for place in places:
        later = [(sum(place <= other < end for other in places), reward) for end, reward in payments if end >= place]
        returns[place] = sum(discount**distance * reward for distance, reward in later)
    return returns


def turn_return_advantages(
    rewards: list[float],
    turn_rewards: list[list[float]],
    groups: list[int],
    masks: list[list[bool]],
    discount: float,
    baseline: str,
) -> list[list[float | None]]:
    """GTPO, one turn at a time: R_j = sum over k >= j of discount^(k - j) * r_k, then (R - mean) / (std + 1e-6).

    The mean and the deviation are those of all turns of the group, or ("turn") of those with the same number.
    """
    returns: dict[tuple[int, int], float] = {}
    for row, (reward, of_turns) in enumerate(zip(rewards, turn_rewards, strict=True)):
        own_rewards = of_turns or [0.0]  # a response without a turn is compared with as well
        for j in range(len(own_rewards)):
            returns[row, j] = sum(discount ** (k - j) * own_rewards[k] for k in range(j, len(own_rewards)))
            returns[row, j] += discount ** (len(own_rewards) - 1 - j) * reward
    advantages: list[list[float | None]] = [[None] * len(mask) for mask in masks]
    for row, mask in enumerate(masks):
        for j, own in enumerate(_turns(mask)):
            peers = [
                value
                for (other, number), value in returns.items()
                if groups[other] == groups[row] and (baseline == "group" or number == j)
            ]
            mean, deviation = (statistics.fmean(peers), statistics.stdev(peers)) if len(peers) > 1 else (0.0, 1.0)
            for place in own:
                advantages[row][place] = (returns[row, j] - mean) / (deviation + 1e-6)
    return advantages


def generalized_turn_advantages(
    reward: float, turn_rewards: list[float], values: list[float], mask: list[bool], discount: float, gae_lambda: float
) -> list[float | None]:
    """GAE by its recursion, from the last token back: A = d + discount * lambda * A of the next token."""
    turns = _turns(mask)
    ends = {own[-1]: rewarded for own, rewarded in zip(turns, turn_rewards, strict=True)}
    advantages: list[float | None] = [None] * len(mask)
    following_value, following_advantage, arriving = 0.0, 0.0, reward
    for place in [place for own in turns for place in own][::-1]:
        error = arriving + ends.get(place, 0.0) + discount * following_value - values[place]
        following_advantage = error + discount * gae_lambda * following_advantage
        advantages[place] = following_advantage
        following_value, arriving = values[place], 0.0
    return advantages


def _turns(mask: list[bool]) -> list[list[int]]:
    """The places of each run of sampled tokens."""
    turns: list[list[int]] = []
    for place, sampled in enumerate(mask):
        if sampled and (place == 0 or not mask[place - 1]):
            turns.append([])
        if sampled:
            turns[-1].append(place)
    return turns


def whiten(rows: list[list[float | None]]) -> list[list[float | None]]:
    """All values that are not None to mean 0 and unbiased variance 1."""
    values = [value for row in rows for value in row if value is not None]
    mean = statistics.fmean(values) if values else 0.0
    variance = statistics.variance(values) if len(values) > 1 else 0.0
    scale = 1 / (variance + 1e-8) ** 0.5
    return [[None if value is None else (value - mean) * scale for value in row] for row in rows]
