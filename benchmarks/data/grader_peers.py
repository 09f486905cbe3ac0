"""The verdicts of other projects' graders over pairs of answers, for `benchmarks/data/grader.py --peers`.

Runs in the environment of `make peers`, or of verifiers (`make test-interop`): reads a JSON list of [reference, answer]
on stdin, and writes the verdicts of the graders whose library is there. Each gets its pair as its project gives it: the
answer in a box in a sentence, the reference as its data has it.
"""

import contextlib
import importlib.util
import json
import logging
import sys
from collections.abc import Callable

Judge = Callable[[str, str], bool]


def verl_math_verify(reference: str, answer: str) -> bool:
    """`verl.utils.reward_score.math_verify`."""
    from verl.utils.reward_score import math_verify

    return bool(math_verify.compute_score(boxed(answer), reference))


def verl_math(reference: str, answer: str) -> bool:
    """Its default for MATH: Hendrycks' comparison of normalized text."""
    from verl.utils.reward_score import math_reward

    return bool(math_reward.compute_score(boxed(answer), reference))


def verl_prime(reference: str, answer: str) -> bool:
    """Its default for Numina: PRIME's."""
    from verl.utils.reward_score import prime_math

    return bool(prime_math.compute_score(boxed(answer), reference)[0])


def trl_accuracy(reference: str, answer: str) -> bool:
    """`trl.rewards.accuracy_reward`, with the reference in dollar signs, where it reads more of them than without."""
    from trl.rewards import accuracy_reward

    return accuracy_reward([[{"content": boxed(answer)}]], [f"${reference}$"])[0] == 1.0


def prime_rl(reference: str, answer: str) -> bool:
    """`verify_boxed_math_answer` of verifiers: that of the environments for mathematics that prime-rl trains on."""
    from verifiers.v1.utils import score

    return score.verify_boxed_math_answer(boxed(answer), reference) == 1.0


# By the library and its function.
JUDGES: dict[str, Judge] = {
    "verl, math_verify": verl_math_verify,
    "verl, math_reward": verl_math,
    "verl, prime_math": verl_prime,
    "trl, accuracy_reward": trl_accuracy,
    "verifiers (prime-rl), verify_boxed_math_answer": prime_rl,
}


def boxed(answer: str) -> str:
    """A response that ends with the answer."""
    return f"So the answer is $\\boxed{{{answer}}}$."


def main() -> None:
    """Judge all pairs by all of them; what raises is not right, except for a missing package."""
    logging.disable(logging.CRITICAL)
    pairs = json.load(sys.stdin)
    verdicts: dict[str, list[bool]] = {}
    with contextlib.redirect_stdout(sys.stderr):
        for name, judge in JUDGES.items():
            if importlib.util.find_spec(name.partition(",")[0].split()[0]) is None:
                continue
            verdicts[name] = []
            for reference, answer in pairs:
                verdict = False
                try:
                    verdict = judge(reference, answer)
                except ImportError:
                    raise
                except Exception:  # of the peer's grader, whose verdict it is
                    pass
                verdicts[name].append(verdict)
    print(json.dumps(verdicts))


if __name__ == "__main__":
    main()
