"""The rows of parquet files, and of files in Arrow's format of streams, with memory in proportion to the file.

A page, a list and a value of a dictionary can be large without taking space, and be repeated. So the sizes that the
metadata has are checked first, and rows become objects in pieces whose size is known.
"""

import io
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import IO, Any, Final

from torl.base.inputs import FREE_STREAM_BYTES, allowed_bytes, require_proportion

_BATCH_ROWS: Final = 1_000  # to bound the memory of their objects
_BUFFER_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 16 << 20
_VALUE_BYTES: Final = 8  # least size of a value: nulls take none in the file
_WIDE_BYTES: Final = 16  # a value of fixed length above it counts as a text does
_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2  # types of a message's header


def parquet_rows(file: IO[bytes], fields: Collection[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a parquet file.

    Args:
        file: The opened file.
        fields: Names of the columns to read; None reads all.

    Raises:
        OSError: A part of the file is too large for its size (`require_proportion`).
        pyarrow.ArrowException: The file is damaged.
    """
    import pyarrow.parquet

    metadata = pyarrow.parquet.read_metadata(file)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    names = [name for name in metadata.schema.to_arrow_schema().names if fields is None or name in fields]
    columns = [metadata.schema.column(index) for index in range(metadata.num_columns)]
    beginnings = tuple(f"{name}." for name in names)
    read = {index: column for index, column in enumerate(columns) if f"{column.path}.".startswith(beginnings)}
    texts = [column for column in read.values() if column.physical_type == "BYTE_ARRAY"]
    has_lists = any(column.max_repetition_level for column in texts)
    rows = min((_checked_rows(group, read) for group in groups), default=1)
    if has_lists:  # a list can hold a large text any number of times, so its texts are read once each
        rows = max((group.num_rows for group in groups), default=1)
    dictionaries = [column.path for column in texts] if has_lists else None
    with pyarrow.parquet.ParquetFile(
        file,
        metadata=metadata,
        read_dictionary=dictionaries,
        pre_buffer=False,  # which would hold the whole file
        buffer_size=_BUFFER_BYTES,
    ) as opened:
        yield from _rows_of(opened.iter_batches(batch_size=max(1, rows), columns=names), _size_of(file))


def stream_rows(file: IO[bytes], fields: Collection[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file in Arrow's format of streams. Has the arguments and errors of `parquet_rows`."""
    import pyarrow

    size = _size_of(file)
    with pyarrow.ipc.open_stream(io.BufferedReader(_CheckedMessages(file))) as batches:
        names = [name for name in batches.schema.names if fields is None or name in fields]
        yield from _rows_of((batch.select(names) for batch in batches), size)


def _checked_rows(group: Any, columns: Mapping[int, Any]) -> int:
    """Check the sizes of a row group by its metadata, and return how many rows fit if each has its longest texts."""
    content = stored = longest = 0
    for index, schema in columns.items():
        column = group.column(index)
        stored += column.total_compressed_size
        width = max(_VALUE_BYTES, schema.length or 0)
        is_long = schema.max_repetition_level > 0 or width > _WIDE_BYTES
        content += max(column.total_uncompressed_size, column.num_values * width if is_long else 0)
        longest += column.total_uncompressed_size if schema.physical_type == "BYTE_ARRAY" else 0
    require_proportion(content, stored)
    return min(_BATCH_ROWS, allowed_bytes(stored) // max(1, longest))


class _CheckedMessages(io.RawIOBase):
    """The bytes of a stream of Arrow, each message of which is checked before a reader decompresses it."""

    def __init__(self, file: IO[bytes]) -> None:
        import pyarrow

        self._messages = pyarrow.ipc.MessageReader.open_stream(file)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            message = next(self._messages, None)
            if message is None:
                return 0
            if message.body is not None:
                require_proportion(_decompressed_bytes(message), message.body.size)
            self._rest = memoryview(message.serialize()).cast("B")
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def _decompressed_bytes(message: Any) -> int:
    """Return the size of the body of a message after decompression: each buffer begins with its own."""
    header = memoryview(message.metadata).cast("B")

    def number(place: int, width: int = 4) -> int:
        return int.from_bytes(header[place : place + width], "little", signed=True)

    def field(table: int, index: int) -> int:
        offsets = table - number(table)
        known = 4 + 2 * index < number(offsets, 2)
        offset = number(offsets + 4 + 2 * index, 2) if known else 0
        return table + offset if offset else 0

    def target(place: int) -> int:
        return place + number(place)

    root = target(0)
    kind, batch = number(field(root, 1), 1), target(field(root, 2))
    if kind == _DICTIONARY_BATCH:
        batch = target(field(batch, 1))
    if kind not in (_RECORD_BATCH, _DICTIONARY_BATCH) or not field(batch, 3):
        return int(message.body.size)
    buffers = target(field(batch, 2))
    offsets = [number(buffers + 4 + 16 * index, 8) for index in range(number(buffers))]
    body = memoryview(message.body).cast("B")
    return sum(max(0, int.from_bytes(body[offset : offset + 8], "little", signed=True)) for offset in offsets)


def _rows_of(batches: Iterable[Any], stored: int) -> Iterator[dict[str, Any]]:
    content = 0
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            for piece, size in _pieces(batch.slice(start, _BATCH_ROWS)):
                content += size
                require_proportion(size, stored)
                require_proportion(content, stored, FREE_STREAM_BYTES)
                yield from _with_short_floats(piece).to_pylist()


def _pieces(batch: Any) -> Iterator[tuple[Any, int]]:
    """Yield parts of a batch with the size of their values: a row, or rows that are small together."""
    size = sum(map(_bytes_of, batch.columns))
    if size <= _PIECE_BYTES or batch.num_rows == 1:
        yield batch, size
        return
    half = batch.num_rows // 2
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))


def _bytes_of(array: Any) -> int:
    """Return the size of the values of an array, each counted as often as it occurs."""
    import numpy
    from pyarrow import ArrowNotImplementedError, compute, types

    kind, least = array.type, _VALUE_BYTES * len(array)
    if types.is_dictionary(kind) and _is_text(kind.value_type):
        lengths = compute.take(compute.binary_length(array.dictionary), array.indices)
        return least + (compute.sum(lengths).as_py() or 0)
    if _is_text(kind):
        return least + (compute.sum(compute.binary_length(array)).as_py() or 0)
    if types.is_string_view(kind) or types.is_binary_view(kind):  # 16 bytes each, which begin with the length
        views = numpy.frombuffer(array.buffers()[1], "<i4").reshape(-1, 4)
        return least + int(views[array.offset :][: len(array), 0].sum(dtype=numpy.int64))
    if types.is_struct(kind):
        return least + sum(map(_bytes_of, array.flatten()))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or types.is_map(kind):
        return least + _bytes_of(array.flatten())
    if types.is_dictionary(kind) and types.is_primitive(kind.value_type):
        return least
    if types.is_primitive(kind) or types.is_decimal(kind) or types.is_null(kind):
        return least
    if hasattr(array, "storage"):  # an extension of a type
        return _bytes_of(array.storage)
    raise ArrowNotImplementedError(f"a column of type {kind} is not read; convert it to a list or to plain values")


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return any(
        matches(kind)
        for matches in (
            types.is_string,
            types.is_large_string,
            types.is_binary,
            types.is_large_binary,
            types.is_fixed_size_binary,
        )
    )


def _with_short_floats(batch: Any) -> Any:
    """Return a batch with 32-bit floats as they were written: as 64 bits, 33.3 would be 33.29999923706055."""
    import pyarrow

    if not any(column.type == pyarrow.float32() for column in batch.columns):
        return batch
    columns = [
        column.cast(pyarrow.string()).cast(pyarrow.float64()) if column.type == pyarrow.float32() else column
        for column in batch.columns
    ]
    return pyarrow.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _size_of(file: IO[bytes]) -> int:
    place = file.tell()
    size = file.seek(0, io.SEEK_END)
    file.seek(place)
    return size
