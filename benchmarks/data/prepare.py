"""Time, memory and counts of `torl data prepare` on rows in NuminaMath-CoT's shape.

    python -m benchmarks.data.prepare [--rows 1000000] [--directory DIRECTORY]

The rows are generated: questions of a few sentences out of hundreds, solutions with a box, and answers of which a
quarter is LaTeX, as in MATH. One row in twenty is invalid, in turn of every kind. Copies with other solutions or other
answers and problems of an evaluation set are among the others. The number of each kind is known and compared. Peak
memory is the largest resident set of the command and, separately, of one of its grader processes. The last line is
JSON.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

BROKEN_EVERY = 20
split = str.split
NAMES = split("Ada Ben Cleo Dan Eva Finn Gia Hugo Ida Jon Kaya Leo Mia Nils Ola Pia Quin Rosa Sam Tea Uma Vera Will")
NOUNS = split(
    "apples boxes coins cards chairs circles cubes dice doors edges faces fields flags flowers gears houses jars lamps "
    "lines marbles nodes pages paths pens points posts rings roads rods rooms rows seats shelves ships stamps stars "
    "stones tiles towers trains trees triangles tubes walls wheels windows words"
)
VERBS = split("buys sells paints counts moves draws loses finds breaks shares stacks rolls weighs cuts joins turns")
PLACES = split("in the garden|on a table|at school|near the river|along a road|in a large hall|before noon|daily", "|")
SENTENCES = (
    "NAME VERB N NOUN PLACE and M more OTHER of another kind.",
    "There are $N$ NOUN PLACE, of which NAME VERB $M$.",
    "Each of the NOUN holds $\\frac{M}{N}$ of the OTHER that NAME VERB.",
    "Let $f(x) = Nx^2 - Mx$ be the number of NOUN PLACE after $x$ OTHER.",
    "If NAME VERB N times as many NOUN as OTHER, there are M left PLACE.",
)
EVALUATED = (
    "Suppose that NAME VERB all NOUN of the first $N$ OTHER.",
    "Now let $M$ be the least number for which NAME has as many NOUN as OTHER PLACE.",
    "Both NAME and the other players take turns with $N$ NOUN each.",
    "Then NAME VERB half of them, and M of the OTHER are left.",
)
ASKED = (
    "How many NOUN does NAME have now?",
    "Find the value of $f(N)$.",
    "What is the total, in terms of $n$?",
    "Compute the least number of NOUN that NAME needs.",
    "Determine how many NOUN are left M days later.",
)
TERMS = split(r"N N Nx x^2 \sqrt{N} N\pi N\sqrt{M} \frac{N}{x} xy \sin(x) \log_2(N) 2^{x} (x+N) \frac{\sqrt{N}}{M} 7!")
SHAPES = split(r"A A A A+B A-B A-B+C (A,B) [A,\infty) \frac{A}{B} A,B x=A \{A,B\} \text{NAME}")


class Problems:
    """Generated problems."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        fixed = {"NOUN": NOUNS, "OTHER": NOUNS, "VERB": VERBS, "PLACE": PLACES}
        self._patterns = [self._filled(self.rng.choice(SENTENCES), fixed) for _ in range(800)]

    def _filled(self, text: str, words: dict[str, list[str]]) -> str:
        for place, choices in words.items():
            text = text.replace(place, self.rng.choice(choices))
        return text

    def _numbered(self, text: str) -> str:
        """Return a text with numbers for its letters N and M."""
        numbers = {place: str(self.rng.randint(2, 10 ** self.rng.randint(1, 4))) for place in "NM"}
        return re.sub(r"(?<![A-Z])[NM](?![A-Z])", lambda found: numbers[found[0]], text)

    def question(self) -> str:
        """A question of four to seven sentences, which no other shares."""
        rng = self.rng
        chosen = [*rng.sample(self._patterns, rng.randint(3, 6)), rng.choice(ASKED)]
        return " ".join(self._filled(self._numbered(each), {"NAME": NAMES, "NOUN": NOUNS}) for each in chosen)

    def evaluated(self) -> str:
        """A question of an evaluation set: the same words in other sentences."""
        fixed = {"NAME": NAMES, "NOUN": NOUNS, "OTHER": NOUNS, "VERB": VERBS, "PLACE": PLACES}
        chosen = self.rng.choices(EVALUATED, k=self.rng.randint(3, 6))
        return " ".join(self._filled(self._numbered(each), fixed) for each in chosen)

    def answer(self) -> str:
        """An answer: an integer, a fraction or LaTeX."""
        rng, kind = self.rng, self.rng.random()
        if kind < 0.6:
            return str(rng.randint(-99, 9999))
        if kind < 0.75:
            return f"\\frac{{{rng.randint(1, 99)}}}{{{rng.randint(2, 99)}}}"
        shape = rng.choice(SHAPES)
        if "NAME" in shape:
            return shape.replace("NAME", rng.choice(NAMES))
        return "".join(self._numbered(rng.choice(TERMS)) if part in "ABC" else part for part in shape)

    def row(self, question: object, box: str) -> dict[str, object]:
        """A row of NuminaMath-CoT, whose messages repeat the question and the solution."""
        step = "From $Nx = M$ we get $x = \\frac{M}{N}$, and NAME VERB M NOUN."
        words = {"VERB": VERBS, "NAME": NAMES, "NOUN": NOUNS}
        steps = [self._filled(self._numbered(step), words) for _ in range(self.rng.randint(4, 16))]
        solution = f"{' '.join(steps)} So the answer is $\\boxed{{{box}}}$."
        messages = [{"content": question, "role": "user"}, {"content": solution, "role": "assistant"}]
        source = self.rng.choice(("cn_k12", "olympiads", "aops_forum"))
        return {"source": source, "problem": question, "solution": solution, "messages": messages}


def broken_rows(problems: Problems) -> dict[str, Callable[[], object]]:
    """Functions that return a row of each kind, or its line, by the reason under which it is counted."""
    choice = problems.rng.choice

    def row(**fields: object) -> dict[str, object]:
        return problems.row(problems.question(), "7") | fields

    return {
        "not_json": lambda: '{"source": "cn_k12", "problem": "cut',
        "not_utf8": lambda: '{"problem": "\udcff", "solution": "$\\\\boxed{1}$"}',
        "not_an_object": lambda: [1, 2],
        "missing_column": lambda: {"source": "cn_k12", "solution": "$\\boxed{1}$"},
        "no_question": lambda: row(problem=choice([None, " "])),
        "question_not_text": lambda: row(problem=choice([5, True, ["p"], {"a": 1}])),
        "no_answer": lambda: row(solution=choice([None, "", "So $\\boxed{}$."])),
        "answer_not_text": lambda: row(solution=choice([True, {"a": 1}])),
        "no_final_answer": lambda: row(solution="We see it."),
        "several_boxes": lambda: row(solution="$\\boxed{1}$ and $\\boxed{2}$"),
        "lone_surrogate": lambda: json.dumps(row(problem="\ud800")),
        "proof": lambda: row(problem="Prove that every number of marbles is even."),
        "multiple_parts": lambda: row(problem=f"(a) {problems.question()} (b) {problems.question()}"),
        "multiple_choice": lambda: row(
            problem=f"{problems.question()} (A) 4 (B) 5", solution="$\\boxed{\\textbf{(B)}}$"
        ),
        "other_script": lambda: row(problem="计算从一到十的所有整数的和是多少?"),
        "long_question": lambda: row(problem="x" * 200_000),
        "long_answer": lambda: row(solution=f"$\\boxed{{{'1' * 200_000}}}$"),
        "unreadable_answer": lambda: row(solution="$\\boxed{1 \\$ 2 $}$"),
        "prose": lambda: row(solution="$\\boxed{\\text{It cannot be found because of the many stones}}$"),
    }


def generate(path: Path, against: Path, rows: int) -> tuple[Counter[str], int]:
    """Write the rows and an evaluation set; return the rows to be dropped by reason, and the number to be kept."""
    problems, expected = Problems(0), Counter[str]()
    broken, choice = broken_rows(problems), problems.rng.choice
    evaluated = [problems.evaluated() for _ in range(1000)]
    against.write_text("".join(json.dumps({"problem": each, "answer": "1"}) + "\n" for each in evaluated))
    latest: list[tuple[str, str]] = []
    pair = ("", "")
    with path.open("wb") as file:
        for number in range(rows):
            row: object
            reason, place = "kept", number % BROKEN_EVERY
            if place == 0:
                reason = list(broken)[number // BROKEN_EVERY % len(broken)]
                row = broken[reason]()
            elif place in (7, 13) and latest:
                question, box = choice(latest)
                row = problems.row(question, box)
                reason = "near_duplicate"
            elif number % 200 in (11, 12):  # a question twice, with two answers
                pair = (
                    (problems.question(), problems.answer()) if number % 200 == 11 else (pair[0], str(10**7 + number))
                )
                row = problems.row(*pair)
                reason = "conflicting_answers"
            elif number % 1000 == 505:
                reason = "in_evaluation_set"
                row = problems.row(f"Note: {choice(evaluated)}", "7")
            else:
                latest = [*latest[-99:], (problems.question(), problems.answer())]
                row = problems.row(*latest[-1])
            expected[reason] += 1
            line = row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)
            file.write(line.encode("utf-8", "surrogateescape") + b"\n")
    return expected, expected.pop("kept")


def measure(words: list[str]) -> dict[str, float]:
    """Run the command in a separate process; return seconds, CPU seconds and peak memory in MiB, also of graders."""
    program = (
        "import resource, sys; from torl_lab.curation.command import main; status = main(sys.argv[1:]);"
        "used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)];"
        "print('USED', *(f'{each.ru_maxrss} {each.ru_utime + each.ru_stime}' for each in used), file=sys.stderr);"
        "sys.exit(status)"
    )
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", program, *words], stderr=subprocess.PIPE, text=True, check=True)
    seconds = time.perf_counter() - started
    peak, cpu, grader_peak, grader_cpu = map(float, done.stderr.rpartition("USED ")[2].split())
    used = {"peak_mib": peak / 1024, "grader_peak_mib": grader_peak / 1024}
    return {"seconds": seconds, "cpu_seconds": cpu, "grader_cpu_seconds": grader_cpu, **used}


def main() -> None:
    """Generate the rows, prepare them, compare the counts and print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--directory", type=Path, help="directory of the files, which are kept (default: temporary)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = arguments.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        raw, against, output = directory / "raw.jsonl", directory / "held.jsonl", directory / "out"
        expected, kept = generate(raw, against, arguments.rows)
        gigabytes, load = raw.stat().st_size / 1e9, os.getloadavg()[0]
        print(f"{arguments.rows:,} rows, {gigabytes:.2f} GB; load {load:.1f}", flush=True)
        measured = measure(["prepare", f"numina_math={raw}", "--against", str(against), "--output", str(output)])
        counts = json.loads((output / "counts.json").read_text())
        shapes = len((output / "answers.jsonl").read_bytes().splitlines())
    found = Counter(counts["dropped"], kept=counts["kept"])
    expected["kept"] = kept
    different = {name: (expected[name], found[name]) for name in expected | found if expected[name] != found[name]}
    print(f"counts that differ (expected, found): {different or 'none'}")
    result = {"rows": arguments.rows, "gigabytes": gigabytes, "load": load, "cores": len(os.sched_getaffinity(0))}
    result |= {**measured, "kept": counts["kept"], "shapes": shapes, "different": len(different)}
    print(json.dumps({name: round(value, 2) for name, value in result.items()}))
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
