"""`import torl`: its names, and the imports that they cost."""

import ast
import contextlib
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import torl
from torl.__main__ import OWN, main
from torl.base.plugins import COMMANDS, plugins

GIANTS = ["torch", "vllm", "deepspeed", "transformers"]
MODULE_OF = vars(torl)["_MODULE_OF"]
NAMES = [*OWN, *plugins(COMMANDS)]


def output_of(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


# --- names ----------------------------------------------------------------------------------------------------------


def test_every_name_is_there_and_loads_no_giant() -> None:
    program = (
        "import sys, torl\n"
        "for name in torl.__all__:\n"
        "    assert getattr(torl, name) is not None\n"
        f"print(sorted(set({GIANTS}) & set(sys.modules)))"
    )
    assert output_of(program) == "[]"


def test_importing_the_package_loads_nothing_of_it() -> None:
    program = "import sys, torl; print(sorted(name for name in sys.modules if name.startswith(('torl.', 'pydantic'))))"
    assert output_of(program) == "[]"


def test_all_names_are_listed() -> None:
    assert len(torl.__all__) == len(set(torl.__all__)) > 30
    assert set(torl.__all__) <= set(dir(torl))
    assert set(MODULE_OF) == set(torl.__all__)


def test_type_checkers_see_the_names_of_the_table() -> None:
    tree = ast.parse(Path(torl.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.name: node.module for node in imports for alias in node.names if alias.asname == alias.name}
    assert seen == MODULE_OF


@pytest.mark.parametrize("name", torl.__all__)
def test_a_name_is_the_object_in_its_module(name: str) -> None:
    value = getattr(torl, name)
    assert value is getattr(sys.modules[MODULE_OF[name]], name)
    assert value is getattr(torl, name)  # kept after its first use


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'torl' has no attribute 'rollouts'"):
        _ = torl.rollouts
    with pytest.raises(ImportError):
        from torl import nothing_of_the_kind  # noqa: F401


def described_fields(documented: type) -> set[str]:
    """The names under "Attributes:" in the docstring of a class and its bases."""
    text = "\n".join(
        inspect.getdoc(base) or ""
        for base in documented.__mro__
        if base.__module__.startswith(("torl.", "torl_sandbox."))
    )
    return set(re.findall(r"^    (\w+): \S", text, flags=re.MULTILINE))


@pytest.mark.parametrize("name", [name for name in torl.__all__ if inspect.isclass(getattr(torl, name))])
def test_help_describes_every_field_and_method_of_a_public_class(name: str) -> None:
    documented = getattr(torl, name)
    assert inspect.getdoc(documented)
    members = {key: value for key, value in vars(documented).items() if not key.startswith("_")}
    for key in members:
        member = inspect.getattr_static(documented, key)
        if isinstance(member, property) or callable(member) or isinstance(member, classmethod | staticmethod):
            assert inspect.getdoc(getattr(documented, key)), key
    if issubclass(documented, torl.Section):
        assert all(field.description for field in documented.model_fields.values())
        return
    fields = {key for key in vars(documented).get("__annotations__", {}) if not key.startswith("_")}
    assert fields - {"component_kind"} <= described_fields(documented)


# --- functions and programs -----------------------------------------------------------------------------------------


def test_importing_the_program_fails_and_keeps_the_function() -> None:
    program = (
        "import torl\n"
        "try:\n"
        "    import torl.train\n"
        "except ImportError as error:\n"
        "    print(error)\n"
        "import torl.run.config, torl.__main__\n"
        "from torl import train\n"
        "print(callable(torl.train), torl.train is train, torl.train.__module__)"
    )
    message, facts = output_of(program).splitlines()
    assert message == "torl.train is a function: `import torl`, then `torl.train(...)`"
    assert facts == "True True torl.api.calls"


def test_no_name_is_also_an_importable_submodule() -> None:
    for name in set(torl.__all__) - {"train"}:
        with pytest.raises(ModuleNotFoundError):
            import_module(f"torl.{name}")
    with pytest.raises(ImportError, match="is a function"):
        import_module("torl.train")


def test_the_program_runs_as_a_module() -> None:
    ended = subprocess.run([sys.executable, "-m", "torl.train", "--help"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0
    assert ended.stdout.startswith("usage: torl train ")
    child = "import runpy; runpy.run_module('torl.train', run_name='__mp_main__')"  # as a spawned process does
    assert output_of(child) == ""


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_the_command_alone_lists_the_commands(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    output = capsys.readouterr().out
    assert all(f"\n  {name} " in output for name in NAMES)


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert "torl trian: no such command; the commands are: train, " in capsys.readouterr().err
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{torl.__version__}\n"


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):
        assert main([name, "--help"]) == 0
    assert f"{name} " in capsys.readouterr().out


def test_presets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 10
    assert any(line.startswith("demo ") and "learns to call Python" in line for line in lines)


@pytest.mark.parametrize(("answer", "status", "verdict"), [("0.5", 0, "correct"), ("0.25", 1, "wrong")])
def test_grade_compares_two_answers(answer: str, status: int, verdict: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grade", r"\frac{1}{2}", answer]) == status
    assert capsys.readouterr().out == f"{verdict}\n"
    assert main(["grade", "1", "1", "--timeout-seconds", "0"]) == 2


@pytest.mark.parametrize("words", [(r"-\frac{1}{2}", "-0.5"), ("-1/2", r"-\frac{1}{2}", "--exact"), ("--", "-x", "-x")])
def test_grade_compares_negative_answers(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grade", *words]) == 0
    assert capsys.readouterr().out == "correct\n"
    with pytest.raises(SystemExit, match="0"):
        main(["grade", "-h"])
