"""`import torl`: what the package shows, without what weighs."""

import subprocess
import sys

import pytest

import torl

GIANTS = ["torch", "vllm", "deepspeed", "transformers"]


def shown(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def test_every_name_is_there_and_loads_no_giant() -> None:
    program = (
        "import sys, torl\n"
        "for name in torl.__all__:\n"
        "    assert getattr(torl, name) is not None\n"
        f"print(sorted(set({GIANTS}) & set(sys.modules)))"
    )
    assert shown(program) == "[]"


def test_importing_the_package_loads_nothing_of_it() -> None:
    assert shown("import sys, torl; print(sorted(name for name in sys.modules if name.startswith('torl.')))") == "[]"


def test_what_is_named_is_listed_and_the_other_way_round() -> None:
    assert len(torl.__all__) == len(set(torl.__all__)) > 30
    assert set(torl.__all__) <= set(dir(torl))
    places = vars(torl)["_PLACE_OF"]
    assert set(places) == set(torl.__all__)


@pytest.mark.parametrize("name", torl.__all__)
def test_a_name_means_the_thing_that_lies_in_its_room(name: str) -> None:
    place = vars(torl)["_PLACE_OF"][name]
    thing = getattr(torl, name)
    assert thing is getattr(sys.modules[place], name)
    assert thing is getattr(torl, name)  # kept once it was found


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'torl' has no attribute 'rollouts'"):
        _ = torl.rollouts
    with pytest.raises(ImportError):
        from torl import nothing_of_the_kind  # noqa: F401
