"""Read or write trajectories in the formats of other libraries.

torl convert FILE OUTPUT.jsonl          read a file of another library as trajectories
torl convert FILE OUTPUT.jsonl --grade  grade the answers again, and count the differences
torl convert FILE DIRECTORY --atif      write each trajectory as a file of ATIF 1.8

The format of FILE is found from its contents: torl's own, or one of
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from torl.base.errors import RecordError
from torl.commands.command import reports_errors
from torl.components.grading.grader import Grader
from torl.components.text.answers import find_answer
from torl.run.records.files import atomic_write
from torl.run.records.reading import read_rows
from torl.run.records.rows import encode_row
from torl_lab.exchange import foreign_format, format_names, model_decoder, read_foreign, readers
from torl_lab.exchange.atif import write_atif
from torl_lab.exchange.tokens import Decode


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        "torl convert",
        description=f"{__doc__}{format_names()}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="file of trajectories")
    parser.add_argument("output", metavar="OUTPUT", type=Path, help="file, or directory with --atif; it must not exist")
    parser.add_argument("--atif", action="store_true", help="write ATIF")
    parser.add_argument("--model", help="name of the model in ATIF")
    parser.add_argument(
        "--tokenizer",
        metavar="MODEL",
        help="model of the tokens, which separates the turns in a dump of slime or miles",
    )
    parser.add_argument("--grade", action="store_true", help="compare the boxed answers with the reference answers")
    options = parser.parse_args(arguments)
    if options.output.exists():
        raise RecordError(f"{options.output} exists; choose another output")
    rows = read_any(options.file, None if options.tokenizer is None else model_decoder(options.tokenizer))
    if options.grade:
        rows = _graded(rows)
    if options.atif:
        options.output.mkdir(parents=True)
        count = write_atif(options.output, rows, options.model)
    else:
        count = _write(options.output, rows)
    print(f"{count} trajectories in {options.output}")
    return 0


def read_any(path: Path, decode: Decode | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file of torl or of another library (`read_foreign`).

    Raises:
        RecordError: The file cannot be read, or has an unknown format.
    """
    if path.is_file() and foreign_format(path) is not None:
        return read_foreign(path, decode)
    rows = read_rows(path)
    first = next(rows, None)
    if first is None or not {"turns", "tool_calls", "question"} <= first.keys():
        raise RecordError(f"{path}: neither a file of trajectories, nor one of {', '.join(readers())}")
    return chain([first], rows)


def _write(path: Path, rows: Iterator[dict[str, Any]]) -> int:
    count = 0
    with atomic_write(path) as file:
        for row in rows:
            file.write(encode_row(row))
            count += 1
    return count


def _graded(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Grade the last boxed answer of each row, and print the number of rows whose grade differs.

    A row without a reference answer keeps its grade.
    """
    graded = differ = failed = kept = 0
    with Grader() as grader:
        for row in rows:
            if not row["reference_answer"]:
                kept += 1
                yield row
                continue
            answer = find_answer(row["sampled_text"])
            verdict = None if answer is None else grader.grade(row["reference_answer"], answer.text)
            correct = verdict is not None and verdict.correct
            graded += 1
            differ += correct != row["correct"]
            failed += verdict is not None and verdict.failure is not None
            yield row | {
                "correct": correct,
                "answer": None if answer is None else answer.text,
                "grader_failure": None if verdict is None else verdict.failure,
            }
    left = f"; {kept} without a reference answer keep their grade" if kept else ""
    print(f"graded {graded}: {graded - differ} as in the file, {differ} otherwise, {failed} undecided{left}")
