"""The corpus of the demo's base model: solutions of mixed quality and copying exercises, as found on the web.

Whether a solution uses code, and which mistake it makes, depends on the problem's operations. Code is really run
and its output is the text in the document, so what the model learns of the interpreter is true.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from demo_maker.interpreter import NO_OUTPUT, Run, run_here
from demo_maker.operations import OPERATIONS
from demo_maker.problems import Collection, Program, programs
from torl.recipes.torl import TEMPLATE as TORL_TEMPLATE

SOLUTION_SHARE = 0.8
TORL_TEMPLATE_SHARE = 5 / 8  # of the solutions
TRIPLE_SHARE = 0.12  # of the solutions
NO_PRINT_RATE = 0.03
RETRY_RATE = 0.55
MISREPORT_RATE = 0.04
RIGHT_WITHOUT_CODE = {True: 0.92, False: 0.10}  # by whether the problem is easy

OTHER_LAYOUTS = (
    "Question: {problem}\nAnswer:\n",
    "Problem: {problem}\nSolution:\n",
    "Q: {problem}\nA:\n",
    "{problem}\n",
)
CODE_OPENINGS = ("Let me compute this with Python.\n", "I will write a short program.\n")
CLOSINGS = ("The answer is $\\boxed{{{}}}$.", "So the answer is $\\boxed{{{}}}$.")
RETRY_OPENING = "The code failed. Let me fix it.\n"

# fmt: off
WORDS = (
    "apple", "river", "stone", "cloud", "green", "table", "north", "music", "paper", "light", "horse", "bread",
    "glass", "winter", "garden", "silver", "yellow", "bridge", "candle", "doctor", "engine", "flower", "harbor",
    "island", "jacket", "kitchen", "ladder", "market", "needle", "orange", "pencil", "quiet", "rocket", "saddle",
    "ticket", "valley", "window", "basket", "copper", "dragon",
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a document. `predictable` is False if the text before it does not determine it."""

    text: str
    predictable: bool


Document = tuple[Segment, ...]


def document_text(document: Document) -> str:
    """The document as one string."""
    return "".join(segment.text for segment in document)


def program_code(program: Program, mistaken: frozenset[int], forget_print: bool = False) -> str:
    """Python for a program, with the dominant mistake of the operations at the positions in `mistaken`."""
    lines = []
    if "math." in "".join(expressions := program.expressions(mistaken)) and not any(
        position in mistaken and OPERATIONS[name].mistake is None for position, name in enumerate(program.names)
    ):
        lines.append("import math")
    if program.start:
        lines.append(f"x = {program.start}")
    variable = "x"
    assigned = expressions if program.start == 0 and len(expressions) == 1 else expressions[:-1]
    for position, expression in enumerate(assigned):
        lines.append(f"{'xy'[position]} = {_on(expression, variable)}")
        variable = "xy"[position]
    last = variable if assigned is expressions else _on(expressions[-1], variable)
    lines.append(last if forget_print else f"print({last})")
    return "\n".join(lines)


def _on(expression: str, variable: str) -> str:
    """An expression in `x`, on another variable."""
    return re.sub(r"\bx\b", variable, expression)


def _guess(random: Random, answer: str, easy: bool) -> str:
    """An answer without computing: off by little on an easy problem, any number of that size on a hard one."""
    if not answer.isdigit() or random.random() < RIGHT_WITHOUT_CODE[easy]:
        return answer
    if easy:
        return str(max(0, int(answer) + random.choice((-2, -1, 1, 2))))
    low = 10 ** (len(answer) - 1)
    return str(random.randint(low, 10 * low - 1))


def _misreported(random: Random, answer: str) -> str:
    position = random.randrange(len(answer))
    return answer[:position] + str(random.randint(1, 9)) + answer[position + 1 :]


def _call(code: str, run: Run) -> list[Segment]:
    return [Segment(f"```python\n{code}\n```\n```output", True), Segment(f"\n{run.observation}\n```\n", False)]


def _solution_with_code(random: Random, program: Program) -> list[Segment]:
    mistaken = frozenset(
        position for position, name in enumerate(program.names) if random.random() < OPERATIONS[name].mistake_rate
    )
    code = program_code(program, mistaken, forget_print=random.random() < NO_PRINT_RATE)
    run = run_here(code)
    segments = [Segment(random.choice(CODE_OPENINGS), True), *_call(code, run)]
    failed = not run.ok or run.observation == NO_OUTPUT
    if failed and random.random() < RETRY_RATE:
        # Only what raised is repaired: a mistake that runs is not noticed.
        silent = frozenset(position for position in mistaken if not _raises(program, position))
        code = program_code(program, silent)
        run = run_here(code)
        segments += [Segment(RETRY_OPENING, True), *_call(code, run)]
        failed = not run.ok
    if failed:
        answer = _guess(random, str(program.values[-1]), program.easy)
    elif random.random() < MISREPORT_RATE:
        answer = _misreported(random, run.observation)
    else:
        answer = run.observation
    return [*segments, Segment(random.choice(CLOSINGS).format(answer), True)]


def _raises(program: Program, position: int) -> bool:
    return not run_here(program_code(program, frozenset({position}))).ok


def _solution_without_code(random: Random, program: Program) -> list[Segment]:
    right = random.random() < RIGHT_WITHOUT_CODE[program.easy]
    values = [str(value) for value in program.values]
    if not right:
        values = [_guess(random, value, False) for value in values]
    steps = " and ".join(f"{variable} is {value}" for variable, value in zip("xy", values[:-1], strict=False))
    opening = f"Here {steps}. " if steps else ""
    return [Segment(opening + random.choice(CLOSINGS).format(values[-1]), True)]


def solution(random: Random, program: Program) -> Document:
    """A solved problem in the ToRL template or a shorter layout, by code or by claim."""
    layout = TORL_TEMPLATE if random.random() < TORL_TEMPLATE_SHARE else random.choice(OTHER_LAYOUTS)
    prompt = Segment(layout.replace("{problem}", program.question(random)), False)
    code_rate = sum(OPERATIONS[name].code_rate for name in program.names) / len(program.names)
    solve = _solution_with_code if random.random() < code_rate else _solution_without_code
    return (prompt, *solve(random, program))


def copying_exercise(random: Random, program: Program) -> Document:
    """A text whose second half follows from its first: lists, restated problems, code, carried-over results."""
    kind = random.randrange(4)
    if kind == 0:
        items = [
            random.choice(WORDS) if random.random() < 0.4 else str(random.randint(0, 10 ** random.randint(1, 6)))
            for _ in range(random.randint(4, 12))
        ]
        line = " ".join(items) + "\n"
        return Segment("List: " + line, False), Segment("Again: " + line, True)
    if kind == 1:
        question = program.question(random)
        return Segment(f"Problem: {question}\n", False), Segment(f"Problem: {question}\n", True)
    if kind == 2:
        code = program_code(program, frozenset())
        return Segment(f"```python\n{code}\n```\n", False), Segment(f"```python\n{code}\n```\n", True)
    number = str(random.randint(10 ** random.randint(0, 9), 10**10))[: random.randint(1, 10)]
    return Segment(f"```output\n{number}\n```\n", False), Segment(random.choice(CLOSINGS).format(number), True)


def documents(random: Random, exclude: Callable[[Program], bool]) -> Iterator[Document]:
    """An endless corpus without any problem that `exclude` rejects."""
    common = programs(random, Collection.TRAINED, exclude)
    triples = programs(random, Collection.TRAINED_TRIPLES, exclude)
    while True:
        program = next(triples if random.random() < TRIPLE_SHARE else common)
        write = solution if random.random() < SOLUTION_SHARE else copying_exercise
        yield write(random, program)
