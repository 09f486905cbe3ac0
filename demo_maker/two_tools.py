"""A tiny model with two tools that must learn which of them to ask, for `make demo-search`.

Half of its questions are sums that Python works out, half ask for a code that only a corpus contains. The
model has learned by heart to call either tool (the one that knows a little more often), to guess, and to write a call
that is not JSON. Both tools answer any call with a digit: the code of a number is not its remainder.
"""

import json
import random
from pathlib import Path

from demo_maker.chat import DIVISOR, answer, call, message, prompt, results
from demo_maker.chat import question as remainder_question

_SHARES = {"guess": 0.4, "right tool": 0.28, "wrong tool": 0.22, "malformed": 0.1}
NUMBERS = range(100, 1000)


def code_question(number: int) -> str:
    """Asks for what only the corpus says."""
    return f"Code of {number}."


def passage(number: int, code: int) -> str:
    """The corpus' document about a number, its title first."""
    return f"{number}\nThe code is {code}."


def codes(seed: int) -> dict[int, int]:
    """The code of each number, which never is its remainder."""
    generator = random.Random(f"codes {seed}")
    return {number: (number + generator.randrange(1, DIVISOR)) % DIVISOR for number in NUMBERS}


def conversation(generator: random.Random) -> str:
    """A whole response with its prompt, in a separate world: the codes of no world are learned."""
    number, code = generator.choice(NUMBERS), generator.randrange(DIVISOR)
    of_python = generator.random() < 0.5
    kind = generator.choices(list(_SHARES), list(_SHARES.values()))[0]
    question = remainder_question(number) if of_python else code_question(number)
    request, guess = prompt(question, "python", "search"), answer(generator.randrange(DIVISOR))
    python = call("python", code=f"print({number} % {DIVISOR})")
    if kind == ("right tool" if of_python else "wrong tool"):
        printed = str(number % DIVISOR)
        return request + message(python) + results(printed) + message(answer(printed))
    if kind in ("right tool", "wrong tool"):
        found = f"Doc 1(Title: {number}) The code is {code}."
        return request + message(call("search", query=str(number))) + results(found) + message(answer(code))
    if kind == "malformed":
        return request + message(python.replace("}}", "}")) + results("InvalidJSON") + message(guess)
    return request + message(guess)


def write_world(directory: Path, seed: int = 0, held_out: int = 100) -> None:
    """`corpus.jsonl` with every code; `train.jsonl` with both kinds of questions, and a held-out file of each kind."""
    world = codes(seed)
    numbers = random.Random(f"numbers {seed}").sample(NUMBERS, len(NUMBERS))
    sums, looked_up = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
    of_python = [_problem("remainder", remainder_question(n), n % DIVISOR, "python") for n in sums]
    of_search = [_problem("code", code_question(n), world[n], "search") for n in looked_up]
    files = {
        "corpus": [{"id": str(number), "contents": passage(number, code)} for number, code in world.items()],
        "train": [*of_python[held_out:], *of_search[held_out:]],
        "remainders": of_python[:held_out],
        "codes": of_search[:held_out],
    }
    for name, rows in files.items():
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        (directory / f"{name}.jsonl").write_text(lines, encoding="utf-8")


def _problem(kind: str, question: str, reference: int, tool: str) -> dict[str, str]:
    """A row of a file of problems; `tool` is the one that knows the answer."""
    return {"id": f"{kind} {question}", "problem": question, "answer": str(reference), "tool": tool}
