"""The sandbox against CPython: programs of many kinds end alike, or for a reason that is in the table of causes."""

from collections.abc import Iterator, Sequence
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from causes import CAUSES, WRONG, Cause, cause_of, causes_of
from comparison import Difference, differences
from corpus import corpus
from filling import PLACE, fill
from generation import AREAS, Area, Program, generate
from native import NativePython
from torl_sandbox import SandboxPool

SHORT, FULL = 400, 100_000


@pytest.fixture(scope="module")
def native() -> Iterator[NativePython]:
    with NativePython() as python:
        yield python


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(1, cpu_seconds=10, result_cache_bytes=0) as pool:
        yield pool


@pytest.fixture(scope="module")
def areas(native: NativePython) -> list[Area]:
    return [area for area in AREAS if all(name in native.packages for name in area.packages)]


def generated(areas: list[Area], count: int, seed: int) -> list[Program]:
    random = Random(seed)
    return [generate(random, areas) for _ in range(count)]


def without_a_cause(programs: list[Program], native: NativePython, pool: SandboxPool) -> str:
    """The differences that nothing in the table explains, as text."""

    def compared(programs: Sequence[Program]) -> Iterator[Difference]:
        return differences(programs, native, pool)

    unexplained = [one for one in compared(programs) if None in causes_of(one, compared)]
    return "\n".join(f"{one.code!a}\nnative: {one.native}\nsandbox: {one.guest}\n" for one in unexplained)


def test_generated_programs_end_as_on_cpython_or_for_a_known_cause(
    areas: list[Area], native: NativePython, pool: SandboxPool
) -> None:
    assert without_a_cause(generated(areas, SHORT, 1), native, pool) == ""


@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False))
def test_programs_of_any_draw_end_as_on_cpython_or_for_a_known_cause(
    areas: list[Area], native: NativePython, pool: SandboxPool, random: Random
) -> None:
    assert without_a_cause([generate(random, areas)], native, pool) == ""


@pytest.mark.parametrize("cause", [cause for cause in CAUSES if cause.example], ids=lambda cause: cause.name)
def test_every_cause_has_a_program_that_shows_it(cause: Cause, native: NativePython, pool: SandboxPool) -> None:
    """An entry without a reason must go too: it would hide another difference."""
    if not cause.shows_on(native):
        pytest.skip("it does not show on this version of CPython, or needs a package that is not installed")
    (found,) = differences([Program("numbers", cause.example)], native, pool)
    assert cause_of(found) is cause


def test_nothing_computes_wrongly_without_a_word() -> None:
    assert [cause.name for cause in CAUSES if cause.kind == WRONG] == []


def test_most_programs_of_every_area_succeed(areas: list[Area], native: NativePython) -> None:
    """A program that ends at its first line compares nothing."""
    for area in areas:
        ended_well = [one.error_type is None for one in native.run([p.code for p in generated([area], 40, 0)])]
        assert sum(ended_well) >= 20, area.name


def test_equal_seeds_make_equal_programs() -> None:
    assert generated(AREAS, 50, 7) == generated(AREAS, 50, 7)


def test_every_place_of_every_template_is_filled() -> None:
    for area in AREAS:
        assert not [template for template in area.templates if PLACE.search(fill(template, Random(0)))]


@pytest.mark.slow
def test_a_hundred_thousand_programs_end_as_on_cpython_or_for_a_known_cause(
    areas: list[Area], native: NativePython, pool: SandboxPool
) -> None:
    programs = [*generated(areas, FULL, 2), *corpus()]
    assert without_a_cause(programs, native, pool) == ""
