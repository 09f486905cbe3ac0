"""Small files whose content is a gigabyte: each reader refuses them with little memory, and reads honest ones."""

import io
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from torl.base.columnar import parquet_rows
from torl.base.errors import DataError, RecordError
from torl.components.data.files import numbered_rows
from torl.run.records.tokens import read_token_numbers
from torl_lab.exchange import read_foreign

MIB = 1 << 20
TEXT = " " * MIB
REFUSAL = "more than 200 times its size"
KEYS = {"groups": np.array(["a"]), **{name: np.zeros(1, np.int64) for name in ("samples", "branches", "updates")}}


def repeated(value: Any, rows: int, kind: pa.DataType) -> pa.Array:
    """A dictionary of one value, which every row has."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([value], kind))


def lists(values: pa.Array) -> pa.Array:
    """One list with all values."""
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


def views(rows: int) -> pa.Array:
    places = pa.py_buffer(struct.pack("<i4sii", MIB, b"    ", 0, 0) * rows)
    return pa.Array.from_buffers(pa.string_view(), rows, [None, places, pa.py_buffer(TEXT.encode())])


PARQUET: dict[str, tuple[Callable[[], pa.Array], dict[str, Any]]] = {
    "a page": (lambda: pa.array([1024 * TEXT]), {"use_dictionary": False, "write_statistics": False}),
    "a dictionary": (lambda: repeated(TEXT, 1024, pa.string()), {}),
    "a dictionary of bytes": (lambda: repeated(TEXT.encode(), 1024, pa.binary()), {}),
    "a dictionary of fixed length": (lambda: pa.array([TEXT.encode()] * 200, pa.binary(MIB)), {}),
    "common beginnings": (
        lambda: pa.array([TEXT] * 512),
        {"use_dictionary": False, "column_encoding": {"x": "DELTA_BYTE_ARRAY"}},
    ),
    "lists of texts": (lambda: pa.array([[TEXT]] * 512), {}),
    "one list of texts": (lambda: lists(repeated(TEXT, 1024, pa.string())), {}),
    "one list of messages": (lambda: lists(pa.StructArray.from_arrays([repeated(TEXT, 1024, pa.string())], ["a"])), {}),
    "one list of numbers": (lambda: lists(pa.array(np.zeros(100 * MIB, np.int8))), {}),
}
ARROW: dict[str, tuple[Callable[[], pa.Array], str | None]] = {
    "zstd": (lambda: pa.array([1024 * TEXT]), "zstd"),
    "lz4": (lambda: pa.array([1024 * TEXT]), "lz4"),
    "a dictionary": (lambda: repeated(TEXT, 1024, pa.string()), None),
    "a compressed dictionary": (lambda: repeated(1024 * TEXT, 1, pa.string()), "zstd"),
    "one list of texts": (lambda: lists(repeated(TEXT, 1024, pa.string())), None),
    "views": (lambda: views(1024), None),
    "a list of nulls": (lambda: lists(pa.nulls(2**31 - 1)), None),
}


def write_stream(path: Path, table: dict[str, pa.Array], codec: str | None = None) -> None:
    batch = pa.record_batch(table)
    with pa.ipc.new_stream(str(path), batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)


def with_column(array: pa.Array) -> dict[str, pa.Array]:
    return {"question": pa.array(["1"] * len(array)), "answer": pa.array(["1"] * len(array)), "x": array}


@pytest.fixture
def little_memory() -> Iterator[None]:
    """The content of the files in this block is a gigabyte."""

    def peak() -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024

    Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
    before = peak()
    yield
    assert peak() - before < 400


def read_rows(path: Path) -> int:
    return sum(1 for _ in numbered_rows([path]))


@pytest.mark.parametrize("kind", PARQUET)
def test_a_small_parquet_file_with_large_content_is_refused(tmp_path: Path, kind: str, request: Any) -> None:
    make, options = PARQUET[kind]
    path = tmp_path / "train.parquet"
    pq.write_table(pa.table(with_column(make())), path, compression="zstd", **options)
    assert path.stat().st_size < MIB
    request.getfixturevalue("little_memory")
    with pytest.raises(DataError, match=REFUSAL):
        read_rows(path)


@pytest.mark.parametrize("kind", ARROW)
def test_a_small_arrow_file_with_large_content_is_refused(tmp_path: Path, kind: str, request: Any) -> None:
    make, codec = ARROW[kind]
    path = tmp_path / "train.arrow"
    write_stream(path, with_column(make()), codec)
    assert path.stat().st_size < 6 * MIB
    request.getfixturevalue("little_memory")
    with pytest.raises(DataError, match=REFUSAL):
        read_rows(path)


@pytest.mark.parametrize(
    "array",
    [
        pa.ListViewArray.from_arrays(pa.array([0] * 9, pa.int32()), pa.array([9] * 9, pa.int32()), pa.nulls(9)),
        pa.RunEndEncodedArray.from_arrays(pa.array([10**9], pa.int32()), pa.array(["x"])),
    ],
    ids=["views of lists", "runs"],
)
def test_a_column_of_unknown_size_is_named(tmp_path: Path, array: pa.Array) -> None:
    write_stream(tmp_path / "train.arrow", {"x": array})
    with pytest.raises(DataError, match=r"a column of type .* is not read"):
        read_rows(tmp_path / "train.arrow")


HONEST = [
    {
        "question": f"{number}?",
        "answer": str(number),
        "prompt": [{"role": "system", "content": "Think. " * 500}, {"role": "user", "content": f"{number}?"}],
        "x.y": [[number], []],
        "bytes": b"\x00\xff",
        "rate": None if number % 7 else number / 8,
        "extra": {"index": number, "names": {"a": str(number)}},
    }
    for number in range(3000)
]


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"row_group_size": 700}, {"compression": "gzip"}])
def test_honest_parquet_files_keep_their_rows(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "train.parquet"
    pq.write_table(pa.Table.from_pylist(HONEST), path, **options)
    with path.open("rb") as file:
        assert list(parquet_rows(file)) == HONEST == pq.read_table(path).to_pylist()
    with path.open("rb") as file:
        wanted = [{name: row[name] for name in ("question", "x.y")} for row in HONEST]
        assert list(parquet_rows(file, {"question", "x.y"})) == wanted


@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_honest_arrow_files_keep_their_rows(tmp_path: Path, codec: str | None) -> None:
    table = pa.Table.from_pylist(HONEST)
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    columns |= {"kind": columns["answer"].dictionary_encode(), "view": columns["question"].cast(pa.string_view())}
    write_stream(tmp_path / "train.arrow", columns, codec)
    expected = [row | {"kind": row["answer"], "view": row["question"]} for row in HONEST]
    assert [row for _, row in numbered_rows([tmp_path / "train.arrow"])] == expected


def test_a_parquet_file_far_larger_than_its_batches_is_streamed(tmp_path: Path, request: Any) -> None:
    """Random texts, which no codec makes smaller: half a gigabyte on disk is read in pieces."""
    path, generator = tmp_path / "train.parquet", np.random.default_rng(0)
    schema = pa.schema({"question": pa.binary(), "answer": pa.string()})
    with pq.ParquetWriter(path, schema) as writer:
        for _ in range(8):
            texts = [generator.bytes(64 << 10) for _ in range(1024)]
            writer.write_table(pa.table({"question": pa.array(texts), "answer": ["1"] * 1024}, schema))
    assert path.stat().st_size > 1 << 29
    request.getfixturevalue("little_memory")
    assert read_rows(path) == 8 * 1024


# --- zip files ---------------------------------------------------------------------------------------------------


def array_file(dtype: str, shape: tuple[int, ...]) -> bytes:
    """The header of an array that is not there."""
    file = io.BytesIO()
    np.lib.format.write_array_header_2_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


ARRAYS: dict[str, dict[str, bytes]] = {
    "zeros": {"advantages": array_file("<f4", (128 * MIB,)) + bytes(512 * MIB)},
    "a shape": {"advantages": array_file("<f4", (10**13,))},
    "empty texts": {"groups": array_file("<U0", (10**9,))},
    "empty values": {"lengths": array_file("|V0", (10**9,))},
    "two dimensions": {"lengths": array_file("<i8", (0, 10**9))},
    "no array": {"lengths": b"text"},
    "fewer lengths": {"lengths": array_file("<i8", (0,))},
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_a_small_file_of_token_numbers_with_large_content_is_refused(tmp_path: Path, kind: str, request: Any) -> None:
    (tmp_path / "tokens").mkdir()
    path = tmp_path / "tokens" / "step_000000.npz"
    plain = {**KEYS, "lengths": np.ones(1, np.int64), "advantages": np.zeros(1, np.float32)}
    np.savez_compressed(path, **{name: array for name, array in plain.items() if name not in ARRAYS[kind]})
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, data in ARRAYS[kind].items():
            file.writestr(f"{name}.npy", data)
    assert path.stat().st_size < 2 * MIB
    request.getfixturevalue("little_memory")
    with pytest.raises(RecordError, match=REFUSAL if kind == "zeros" else r"npz: damaged: "):
        read_token_numbers(tmp_path, 0)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, 93])
@pytest.mark.parametrize("stated", [None, 10], ids=["true size", "false size"])
def test_a_small_log_with_a_large_sample_is_refused(
    tmp_path: Path, method: int, stated: int | None, request: Any
) -> None:
    path = tmp_path / "log.eval"
    compression = zipfile.ZIP_STORED if method == 93 else method
    with zipfile.ZipFile(path, "w", compression) as file:
        data = (8 if method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA) else 512) * TEXT.encode()
        file.writestr("samples/1.json", pa.compress(data, "zstd", asbytes=True) if method == 93 else data)
        if method == 93:
            file.infolist()[0].compress_type, file.infolist()[0].file_size = 93, len(data)
        if stated is not None:
            file.infolist()[0].file_size = stated
    del data
    assert path.stat().st_size < 2 * MIB
    request.getfixturevalue("little_memory")
    with pytest.raises(RecordError):
        list(read_foreign(path))


@pytest.mark.parametrize("what", ["text", "tensor"])
def test_a_small_dump_with_large_content_is_refused(tmp_path: Path, what: str, request: Any) -> None:
    value = torch.zeros(1 << 27) if what == "tensor" else 512 * TEXT
    plain = io.BytesIO()
    torch.save({"samples": [{"prompt": value}]}, plain)
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(tmp_path / "7.pt", "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    del plain, value
    request.getfixturevalue("little_memory")
    with pytest.raises(RecordError, match=REFUSAL):
        list(read_foreign(tmp_path / "7.pt"))


def test_completions_of_trl_are_read_as_other_parquet_files_are(tmp_path: Path, request: Any) -> None:
    columns = {"step": [1] * 1024, "prompt": ["?"] * 1024, "completion": repeated(TEXT, 1024, pa.string())}
    pq.write_table(pa.table(columns), tmp_path / "completions.parquet", compression="zstd")
    request.getfixturevalue("little_memory")
    with pytest.raises(RecordError, match=REFUSAL):
        for _ in read_foreign(tmp_path / "completions.parquet"):
            pass
