"""How long the learner's packed rows may be, by the memory that an update leaves."""

from dataclasses import replace

from torl.config import TrainConfig
from torl.placement.ledger import ledger
from torl.placement.resolve import ResolvedConfig
from torl.placement.shape import ModelShape

# Longer rows are no faster: the matrix products of an eighth of them fill a GPU.
_MAX_ROW = 1 << 15
_GRAIN = 1 << 10
# Of a GPU, for what the ledger does not count: what its allocator cannot use again.
_SPARE = 0.1


def with_row_tokens(settled: ResolvedConfig[TrainConfig], shape: ModelShape) -> ResolvedConfig[TrainConfig]:
    """`learner.max_row_tokens = "auto"` settled: the longest rows that leave a tenth of every GPU of the learner free.

    Where not even the longest sample does, rows are as long as that: whether it fits, the ledger says.

    Args:
        settled: where its bytes are not known, it stays as it is.
        shape: of the model.
    """
    if settled.config.learner.max_row_tokens != "auto" or not settled.counted:
        return settled
    least = ledger(settled, shape).learner.longest_sample
    tokens = max(least, _MAX_ROW)
    while tokens > least and not _leaves_room(_with(settled, tokens), shape):
        tokens = max(least, (tokens - 1) // _GRAIN * _GRAIN)
    return _with(settled, tokens)


def _with(settled: ResolvedConfig[TrainConfig], tokens: int) -> ResolvedConfig[TrainConfig]:
    learner = settled.config.learner.model_copy(update={"max_row_tokens": tokens})
    return replace(settled, config=settled.config.model_copy(update={"learner": learner}))


def _leaves_room(settled: ResolvedConfig[TrainConfig], shape: ModelShape) -> bool:
    book = ledger(settled, shape)
    (update,) = [stage for stage in book.stages if stage.name == "update"]
    gpus = settled.placement.machine.gpus
    return all(
        sum(update.on_gpu(gpu, settled.placement).values()) <= (1 - _SPARE) * gpus[gpu].memory_bytes
        for gpu in settled.placement.learner_devices
    )
