"""Trajectories in the formats of other libraries, as rows of torl's files: read, and written as ATIF."""

from torl.records.exchange.readers import READERS as READERS
from torl.records.exchange.readers import foreign_format as foreign_format
from torl.records.exchange.readers import read_foreign as read_foreign
