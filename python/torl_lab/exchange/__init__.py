"""Trajectories in the formats of other libraries, as rows of torl's files: read, and written as ATIF."""

from torl_lab.exchange.reader import Decode as Decode
from torl_lab.exchange.reader import model_decoder as model_decoder
from torl_lab.exchange.reader import model_token_bytes as model_token_bytes
from torl_lab.exchange.readers import foreign_format as foreign_format
from torl_lab.exchange.readers import read_foreign as read_foreign
from torl_lab.exchange.readers import readers as readers
