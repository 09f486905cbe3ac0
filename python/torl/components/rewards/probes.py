"""Responses that pay without being right: what a reward function is probed with."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torl.base.errors import RewardError

RewardFunction = Callable[[str, str], float]
"""From a response and the reference answer to a reward."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A response to a problem, and whether it is right."""

    kind: str
    response: str
    right: bool = False


@dataclass(frozen=True, slots=True)
class RewardFault:
    """A fault of a reward function: it raised, rewarded a wrong response in full, or a right response in part."""

    kind: str
    reference: str
    response: str
    what: str


def probes(question: str, reference: str) -> Iterator[Probe]:
    """Yield correct responses in several forms, and incorrect ones that a careless grader rewards."""
    other = "7919" if reference.strip() != "7919" else "7907"
    yield Probe("right", f"So the answer is \\boxed{{{reference}}}.", right=True)
    yield Probe("right after a first try", f"First \\boxed{{{other}}}. No: \\boxed{{{reference}}}.", right=True)
    yield Probe("wrong", f"So the answer is \\boxed{{{other}}}.")
    yield Probe("empty", "")
    yield Probe("empty box", "\\boxed{}")
    yield Probe("the question repeated", question)
    yield Probe("the question in a box", f"\\boxed{{{question}}}")
    yield Probe("no box", f"The answer is not {reference}.")
    yield Probe("taken back", f"\\boxed{{{reference}}} is wrong; it is \\boxed{{{other}}}.")
    yield Probe("a hedge", f"\\boxed{{{reference} \\text{{ or }} {other}}}")
    yield Probe("a list of guesses", f"\\boxed{{{reference}, {other}, 1, 2, 3}}")
    yield Probe("many boxes", " ".join(f"\\boxed{{{number}}}" for number in [reference, *range(100, 110), other]))
    yield Probe("not equal", f"\\boxed{{\\ne {reference}}}")
    yield Probe("at least", f"\\boxed{{\\ge {reference}}}")
    yield Probe("a chain of equations", f"\\boxed{{{other} = {other} = {other}}}")
    yield Probe("a box that never closes", f"\\boxed{{{reference}")
    yield Probe("injected code", "\\boxed{__import__('os')._exit(0)}")
    yield Probe("a number without end", "\\boxed{9^{9^{9^9}}}")
    yield Probe("brackets without end", "\\boxed{" + "(" * 3000 + ")" * 3000 + "}")


def as_reward_function(function: Callable[..., Any]) -> RewardFunction:
    """Return a function of (response, reference), also for the arguments of verl's and TRL's reward functions.

    verl's have `solution_str` and `ground_truth`. TRL's have `completions`; the reference is passed as each of their
    other arguments without a default, or as `answer`.
    """
    parameters = inspect.signature(function).parameters
    if {"solution_str", "ground_truth"} <= parameters.keys():

        def of_verl(response: str, reference: str) -> float:
            score = function(data_source="", solution_str=response, ground_truth=reference, extra_info={})
            return float(score["score"] if isinstance(score, Mapping) else score)

        return of_verl
    if "completions" in parameters:
        columns = [
            name
            for name, parameter in parameters.items()
            if name != "completions"
            and parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        ]

        def of_trl(response: str, reference: str) -> float:
            (reward,) = function(completions=[response], **{name: [reference] for name in columns or ["answer"]})
            return float(reward)

        return of_trl
    return function


def audit(reward: RewardFunction, problems: Sequence[tuple[str, str]]) -> list[RewardFault]:
    """Return the faults of a reward function on probes of these problems (question, reference).

    A wrong response must have a lower reward than the plain right one, and a right response the same.

    Raises:
        RewardError: The function raised for the plain right response: it cannot be probed.
    """
    findings = []
    for question, reference in problems:
        paid: dict[str, float] = {}
        for probe in probes(question, reference):
            try:
                paid[probe.kind] = float(reward(probe.response, reference))
            except Exception as error:
                if probe.kind == "right":
                    raise RewardError(
                        f"the function raised {type(error).__name__} for a right response: {error}"
                    ) from error
                findings.append(
                    RewardFault(probe.kind, reference, probe.response, f"raised {type(error).__name__}: {error}")
                )
                continue
            full = paid["right"]
            if probe.right and paid[probe.kind] < full:
                findings.append(RewardFault(probe.kind, reference, probe.response, "is right and paid less"))
            if not probe.right and paid[probe.kind] >= full:
                findings.append(RewardFault(probe.kind, reference, probe.response, "is wrong and paid in full"))
    return findings
