"""Readers of parquet files, and of the .arrow files that `save_to_disk` of `datasets` writes."""

from collections.abc import Iterable, Iterator
from typing import Any

from torl.data.row_files import Fields, Row, RowFile, arrow_errors

_BATCH_SIZE = 1_000  # parquet rows per batch, to bound the memory of their objects


def read_parquet(path: RowFile, fields: Fields) -> Iterator[Row]:
    """Yield the rows of a parquet file.

    Raises:
        DataError: The file is damaged.
    """
    import pyarrow.parquet

    with (
        arrow_errors(path, "parquet"),
        path.open("rb") as opened,
        pyarrow.parquet.ParquetFile(opened) as file,
    ):
        names = None if fields is None else [name for name in file.schema_arrow.names if name in fields]
        yield from _rows_of(path, file.iter_batches(batch_size=_BATCH_SIZE, columns=names))


def read_arrow(path: RowFile, fields: Fields) -> Iterator[Row]:
    """Yield the rows of a file in Arrow's format of streams.

    Raises:
        DataError: The file is damaged.
    """
    import pyarrow

    with arrow_errors(path, "arrow"), path.open("rb") as opened, pyarrow.ipc.open_stream(opened) as batches:
        names = [name for name in batches.schema.names if fields is None or name in fields]
        yield from _rows_of(path, (batch.select(names) for batch in batches))


def _rows_of(path: RowFile, batches: Iterable[Any]) -> Iterator[Row]:
    number = 0
    for batch in batches:
        for row in _with_short_floats(batch).to_pylist():
            number += 1
            yield f"{path}, row {number}", row


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
