"""Modules of the sandbox's interpreter, run natively and compared with what they stand for."""

import decimal
import errno
import hashlib
import math
import os
import random
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SOURCES = Path(__file__).parents[2] / "crates/sandbox/src"


def load(path: str) -> Any:
    spec = spec_from_file_location(f"guest_{Path(path).stem}", SOURCES / path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of numbers, on the Python implementation of decimals and with its own conversions of integers."""

    def unlimited(convert: Any) -> Any:
        def converted(value: Any) -> Any:
            limit = sys.get_int_max_str_digits()
            sys.set_int_max_str_digits(0)
            try:
                return convert(value)
            finally:
                sys.set_int_max_str_digits(limit)

        return converted

    conversions = ModuleType("_pylong")  # since Python 3.12
    vars(conversions).update(int_to_decimal_string=unlimited(str), int_from_string=unlimited(int))
    monkeypatch.setitem(sys.modules, "_pylong", conversions)
    monkeypatch.delitem(sys.modules, "_pydecimal", raising=False)
    return load("guest/library/numbers.py")


def test_hashes_of_floats_are_those_of_64_bits(numbers: Any) -> None:
    draws = random.Random(0)
    floats = [draws.gauss(0, 1) * 10 ** draws.randint(-320, 308) for _ in range(2000)]
    floats += [0.0, -0.0, -1.0, 1.0, 5e-324, 0.5, 3.7, 1e10, math.inf, -math.inf, float(2**61 - 1), -float(2**61)]
    assert [numbers.float_hash(value) for value in floats] == [hash(value) % 2**64 for value in floats]


def _digits(library: Any) -> list[str]:
    with library.localcontext() as context:
        context.prec = 5000
        texts = [str(library.Decimal(1) / 7), str(library.Decimal(2).sqrt())]
    long = library.Decimal("7" * 4400)
    texts += [str(long * long), f"{-long:.3e}", str(int(long) % 10**9), str(library.Decimal(10**4400) + 1)]
    return [*texts, str(library.Decimal("1.5") + 1)]


def test_decimals_have_any_number_of_digits_and_integers_do_not(numbers: Any) -> None:
    python = sys.modules["_pydecimal"]
    numbers.install()
    assert vars(python).get("str") is None  # slower; not before it is needed
    assert _digits(python) == _digits(decimal)
    with pytest.raises(ValueError, match="Exceeds the limit"):
        str(10**5000)


def test_password_digests_are_those_of_openssl() -> None:
    digests, draws = load("guest/library/digests.py"), random.Random(0)
    for _ in range(30):
        name = draws.choice(["sha1", "sha256", "sha512", "md5"])
        password, salt = draws.randbytes(draws.randint(0, 200)), draws.randbytes(draws.randint(0, 40))
        given = (name, password, salt, draws.randint(1, 20), draws.choice([None, 1, 20, 33, 200]))
        assert digests.pbkdf2_hmac(*given) == hashlib.pbkdf2_hmac(*given)
        scrypt: dict[str, Any] = {
            "salt": salt,
            "n": 2 ** draws.randint(1, 3),
            "r": draws.randint(1, 4),
            "p": draws.randint(1, 2),
            "dklen": draws.randint(1, 90),
        }
        assert digests.scrypt(password, **scrypt) == hashlib.scrypt(password, **scrypt)


@pytest.mark.parametrize("wrong", [{"n": 3}, {"n": 1}, {"r": 0}, {"p": 0}, {"n": 2**20}, {"dklen": 0}])
def test_wrong_parameters_are_rejected_as_by_openssl(wrong: dict[str, int]) -> None:
    given: dict[str, Any] = {"salt": b"", "n": 2, "r": 8, "p": 1, **wrong}
    for library in (load("guest/library/digests.py"), hashlib):
        with pytest.raises(ValueError, match=r"n must|Invalid parameter|limit exceeded|dklen"):
            library.scrypt(b"", **given)


def test_error_numbers_are_those_of_linux() -> None:
    source = (SOURCES / "guest/errors.py").read_text(encoding="utf-8").partition("def renumber")[0]
    names: dict[str, Any] = {}
    exec(source, names)
    assert names["LINUX"] == {name: getattr(errno, name) for name in names["LINUX"]}
    assert all(os.strerror(number) for number in names["LINUX"].values())


def test_interrupted_seeding_is_done_again() -> None:
    driver = load("run/driver.py")
    seeds: list[int] = []

    def interrupted(seed: int) -> None:
        seeds.append(seed)
        if len(seeds) == 1:
            raise KeyboardInterrupt

    driver._seed_random = interrupted
    with pytest.raises(KeyboardInterrupt):
        driver.seed_generators(9)
    driver.seed_generators(9)
    driver.seed_generators(9)
    assert seeds == [9, 9]
