"""The prose check: patterns, passages, exemptions."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.check_prose import ROOT, TABLE, check, files, table

# Pattern, and a docstring that it finds and one that it does not.
DOCSTRINGS = [
    ("P1", "What the program prints.", "Print what is new."),
    ("P2", "Of every step, the loss.", "Offset of the step."),
    ("P3", "Where a run is stored.", "How many steps a run has."),
    (
        "P4",
        "Sample.\n\n    Args:\n        seed: of everything random.",
        "Sample.\n\n    Args:\n        seed: Random seed.",
    ),
    (
        "P5",
        "Run.\n\n    Raises:\n        ConfigError: it is missing.",
        "Run.\n\n    Raises:\n        ConfigError: No file.",
    ),
    ("P6", "Close it.", "Close it and its files."),
    ("P7", "A value that is no text.", "There is no text."),
    ("P8", "Return the mean of what\n    is left.", "Decide what is left."),
    ("P9", "A spoilt episode.", "The spoiler of a car."),
    ("P10", "Then the others go on.", "Files go on the disk."),
    ("P11", "A judge behind the rules.", "A server behind a proxy."),
    ("P12", "The file lies there.", "N stands for a number."),
    ("P13", "A tool of one's own.", "A tool of your own choice."),
    ("P14", "A lock that nobody holds.", "A lock that no process holds."),
    ("P15", "Keep so many steps.", "So many that it fails."),
    ("P16", "The model is told the result.", "Tell the model the result."),
    ("P17", "Whether the run ended well.", "Whether the run ended."),
    ("P18", "One takes its place.", "One takes a place."),
    ("P19", "Connect to nothing yet.", "Nothing is yet connected."),
    ("P20", "The door of the sandbox.", "The indoor temperature."),
    ("P21", "The peer has gone.", "The peer has left."),
    ("P22", "The lengths. Those of prompts come first.", "The lengths are those of prompts."),
    ("P23", "A file; see there.", "A file; see the guide."),
    ("P24", "A time-out of the data set.", "A timeout of the dataset."),
    ("P25", "Turns that are paid.", "A payment."),
    ("P26", "A module for each of the rooms.", "Memory has room for two."),
    ("P27", "The engine sleeps meanwhile.", "The engine sleeps for a while."),
    ("P28", "Return 0, whatever happens.", "Return what happens."),
    ("P29", "The query is none.", "The query is None."),
    ("P30", "The call was given up.", "The process has given up its rights."),
    ("P31", "A thread of its own.", "Epochs of its own problems."),
    ("P32", "The path, or None where it is missing.", "The directory where it is stored."),
    ("P33", "The host is broken.", "The text is broken into lines."),
    ("P34", "Files that lie in a folder.", "Values do not lie."),
    ("P35", "The walls of the sandbox.", "A limit on wall-clock time."),
    ("P36", "The cause is said in the log.", "The cause is logged."),
    ("P37", "An option besides these.", "An option in addition to these."),
    ("P38", "Let go of the lock.", "Release the lock and let it go."),
]
# The same for other passages, as code.
CODE = [
    ("T1", "def test_tool_is_told() -> None: ...", "def test_tool_is_untold() -> None: ..."),
    ("T2", "def test_what_runs() -> None: ...", "def test_run() -> None: ..."),
    ("T3", f"def test_{76 * 'a'}() -> None: ...", f"def test_{75 * 'a'}() -> None: ..."),
    ("H1", 'add("--x", help="of the run")', 'add("--x", help="offset of the run")'),
    ("L1", f'"""One{25 * " word"}."""', f'"""One{24 * " word"}. Another{25 * " word"}."""'),
    ("N1", "MOST_BYTES: int = 3", "ALMOST_ALL = longest_line = 3"),
    ("N2", "def cut(most_bytes: int) -> None: ...", "def cut(mostly: int) -> None: ..."),
]


def codes(folder: Path, text: str, name: str = "module.py") -> list[str]:
    """Return `LINE CODE` of each hit in a file with this text."""
    path = folder / name
    path.write_text(text)
    return [f"{hit.line} {hit.code}" for hit in check(path)]


@pytest.mark.parametrize(("code", "caught", "passed"), DOCSTRINGS, ids=[code for code, *_ in DOCSTRINGS])
def test_pattern_finds_its_phrase_in_docstrings(tmp_path: Path, code: str, caught: str, passed: str) -> None:
    for text, expected in ((caught, True), (passed, False)):
        found = codes(tmp_path, f'def run():\n    """{text}\n    """\n')
        assert (code in {hit.split()[1] for hit in found}) is expected, found


@pytest.mark.parametrize(("code", "caught", "passed"), CODE, ids=[code for code, *_ in CODE])
def test_pattern_finds_its_names_and_help(tmp_path: Path, code: str, caught: str, passed: str) -> None:
    assert codes(tmp_path, caught) == [f"1 {code}"]
    assert codes(tmp_path, passed) == []


def test_retired_module_name_is_found(tmp_path: Path) -> None:
    assert codes(tmp_path, "", "told.py") == ["1 N3"]
    assert codes(tmp_path, "", "retold.py") == []


def test_each_pattern_has_an_example() -> None:
    assert [code for code, *_ in TABLE] == [code for code, *_ in (*DOCSTRINGS, *CODE)] + ["N3"]


def test_attribute_docstrings_are_checked(tmp_path: Path) -> None:
    assert codes(tmp_path, 'class A:\n    """A class."""\n\n    a: int = 3\n    """What it is."""\n') == ["5 P1"]


def test_only_comments_and_errors_of_python_code_are_checked(tmp_path: Path) -> None:
    source = (
        "a = 'told'  # told\n# It is\n#   told\nif a:\n    raise ValueError(\n        f'{a} told',\n    )\nf('told')\n"
    )
    assert codes(tmp_path, source) == ["6 P16", "1 P16", "3 P16"]


def test_docstring_patterns_do_not_apply_to_comments(tmp_path: Path) -> None:
    assert codes(tmp_path, "# What it prints.\n") == []


def test_rust_comments_tests_and_constants_are_checked(tmp_path: Path) -> None:
    source = '//! Told.\nconst MOST_RUNS: u8 = 3; // told\nlet url = "told://told";\n#[test]\nfn nobody_runs() {}\n'
    assert codes(tmp_path, source, "lib.rs") == ["5 T1", "2 N1", "1 P16", "2 P16"]


def test_markdown_is_checked_outside_code_fences(tmp_path: Path) -> None:
    assert codes(tmp_path, "Told.\n\n```console\n$ told\n```\n\nIt is\ntold.\n", "page.md") == ["1 P16", "8 P16"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("module.py", "a = 3  # told  # prose: ok\n"),
        ("module.py", '"""A value that is told."""  # prose: ok\n'),
        ("module.py", '"""A value. # prose: ok\n\nIt is told.\n"""\n'),
        ("module.py", '"""A value.\n\nIt is told.\n"""  # prose: ok\n'),
        ("module.py", "def test_what_runs() -> None:  # prose: ok\n    pass\n"),
        ("lib.rs", "// told // prose: ok\n"),
        ("page.md", "A value that is told. <!-- prose: ok -->\n"),
    ],
)
def test_marker_exempts_its_line_or_docstring(tmp_path: Path, name: str, text: str) -> None:
    assert codes(tmp_path, text, name) == []
    assert len(codes(tmp_path, text.replace("prose: ok", ""), name)) == 1


def test_marker_of_a_comment_does_not_exempt_its_neighbors(tmp_path: Path) -> None:
    assert codes(tmp_path, "# told  # prose: ok\n# told\n# told  # prose: ok\n") == ["2 P16"]


def test_programs_for_the_sandbox_are_skipped() -> None:
    found = {path.relative_to(ROOT).parts[2] for path in files([ROOT / "tests" / "sandbox"])}
    assert found
    assert not {"attacks", "programs"} & found


def test_table_counts_hits_by_pattern_and_folder(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("# told, paid, told\n")
    hits = [hit._replace(path=f"docs/{hit.path}") for hit in check(tmp_path / "a.py")]
    rows = {row[0]: row[1:] for row in (line.split() for line in table(hits).splitlines()[1:])}
    assert rows["P16"] == ["2", "2"]
    assert rows["P1"] == ["0", "0"]
    assert rows["all"] == ["3", "3"]


def test_command_prints_hits_and_fails(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, ROOT / "scripts" / "check_prose.py", *arguments], capture_output=True, text=True
        )

    path = tmp_path / "a.md"
    path.write_text("It was told.\n")
    done = run(str(tmp_path))
    assert done.returncode == 1
    assert done.stdout == f'{path}:1: P16: "told" — write receive, be given, be notified, report\n'
    path.write_text("It was received.\n")
    done = run(str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "")
    assert run(str(tmp_path / "missing")).returncode == 2
