"""Readers of parquet files, and of the .arrow files that `save_to_disk` of `datasets` writes."""

from collections.abc import Iterator

from torl.base.columnar import parquet_rows, stream_rows
from torl.components.data.row_files import Fields, Row, RowFile, arrow_errors


def read_parquet(path: RowFile, fields: Fields) -> Iterator[Row]:
    """Yield the rows of a parquet file.

    Raises:
        DataError: The file is damaged, or its content is far larger than the file.
    """
    with arrow_errors(path, "parquet"), path.open("rb") as opened:
        for number, row in enumerate(parquet_rows(opened, fields), start=1):
            yield f"{path}, row {number}", row


def read_arrow(path: RowFile, fields: Fields) -> Iterator[Row]:
    """Yield the rows of a file in Arrow's format of streams. Raises the errors of `read_parquet`."""
    with arrow_errors(path, "arrow"), path.open("rb") as opened:
        for number, row in enumerate(stream_rows(opened, fields), start=1):
            yield f"{path}, row {number}", row
