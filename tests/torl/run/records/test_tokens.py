"""The learner's numbers of tokens: written, read back, damaged, and removed by a resumed run."""

from pathlib import Path

import numpy as np
import pytest

from torl.base.errors import RecordError
from torl.base.types import UpdateNumbers
from torl.run.records.files import token_file, token_files
from torl.run.records.tokens import TokenKey, read_token_numbers, write_token_numbers
from torl.run.records.writers import RunWriter


def numbers(length: int, update: int = 0, **more: float) -> UpdateNumbers:
    random = np.random.default_rng(length)
    names = ("learner_logprobs", "entropies", "advantages")
    arrays = {name: random.normal(size=length).astype(np.float32) for name in names}
    return UpdateNumbers(update, arrays | {name: np.full(length, value, np.float32) for name, value in more.items()})


NUMBERS = {
    TokenKey("12/ü", 0, 0): numbers(3, old_logprobs=-1.5),
    TokenKey("12/ü", 0, 1): numbers(5, update=2, clipped=1.0),
    TokenKey("12/ü", 1, 0): numbers(0),
    TokenKey("12/b", 0, 0): numbers(1, importance_weights=2.0),
}


def test_numbers_read_back_bit_by_bit(tmp_path: Path) -> None:
    write_token_numbers(tmp_path, 12, NUMBERS)
    found = read_token_numbers(tmp_path, 12)
    assert list(found) == list(NUMBERS)
    for key, written in NUMBERS.items():
        assert found[key].update == written.update
        for name, array in written.arrays.items():
            if len(array):
                np.testing.assert_array_equal(found[key].arrays[name], array)
        if len(written.arrays["advantages"]):
            assert found[key].arrays.keys() == written.arrays.keys()


def test_equal_numbers_give_equal_files(tmp_path: Path) -> None:
    first = write_token_numbers(tmp_path, 1, NUMBERS).read_bytes()
    assert write_token_numbers(tmp_path, 1, NUMBERS).read_bytes() == first


def test_a_step_without_a_file_has_no_numbers(tmp_path: Path) -> None:
    assert read_token_numbers(tmp_path, 0) == {}
    with RunWriter(tmp_path) as writer:
        writer.write_tokens(0, {})
    assert token_files(tmp_path) == {}


@pytest.mark.parametrize("keep", [0, 1, 100, -30])
def test_a_cut_file_is_damaged(tmp_path: Path, keep: int) -> None:
    path = write_token_numbers(tmp_path, 3, NUMBERS)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(RecordError, match=r"step_000003\.npz: damaged"):
        read_token_numbers(tmp_path, 3)


def test_arrays_of_another_length_are_damage(tmp_path: Path) -> None:
    path = write_token_numbers(tmp_path, 3, NUMBERS)
    with np.load(path) as archive:
        arrays = dict(archive)
    np.savez(path, **arrays | {"entropies": arrays["entropies"][:-1]})
    with pytest.raises(RecordError, match="does not have one number for each token"):
        read_token_numbers(tmp_path, 3)


def test_a_pickled_array_is_not_executed(tmp_path: Path) -> None:
    path = write_token_numbers(tmp_path, 3, NUMBERS)
    np.savez(path, groups=np.array([{"a": 1}], object))
    with pytest.raises(RecordError, match="damaged"):
        read_token_numbers(tmp_path, 3)


def test_a_resumed_run_removes_the_numbers_of_repeated_steps(tmp_path: Path) -> None:
    with RunWriter(tmp_path) as writer:
        for step in range(5):
            writer.write_tokens(step, NUMBERS)
    with RunWriter(tmp_path, resume_step=3):
        assert sorted(token_files(tmp_path)) == [0, 1, 2]
    assert token_file(tmp_path, 2).exists()
