"""Reduces the number of memory pages that runs write to: each costs a fault during the run and a copy after it.

Two things spread writes over all of memory. Reference counts: an object that is only read is written to. They are made
immortal, so that the interpreter does not change them. And holes: the warm-up leaves thousands of small free blocks,
and new objects go there, each to a separate page. The holes are filled permanently, so that a run's objects are
together at the end of memory.

Evaluated in the guest after the warm-up. This module is only an optimization: a run returns the same results without
it.
"""

import gc
import os
import sys
import types

import _torl_driver

# Free memory at the end: runs that need no more do not have to grow it, which could not be undone in a reused guest.
SLACK_BYTES = 24 << 20
SMALL_BLOCK_LIMIT = 512
LARGE_BLOCK_LIMIT = 1 << 20
BYTES_OVERHEAD = sys.getsizeof(b"")

_ballast = []


def report_lasting_objects():
    """Write the address of every object that was alive before into the run's report, four bytes each."""
    waiting = gc.get_objects()
    seen = {id(waiting), id(_ballast)}
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        os.write(_torl_driver.REPORT_DESCRIPTOR, id(one).to_bytes(4, "little"))
        waiting += gc.get_referents(one)
        if isinstance(one, types.CodeType):
            waiting += _parts_of_code(one)


def _parts_of_code(code):
    # The other tuples and the code itself are created anew on every access.
    return [
        code.co_consts,
        code.co_exceptiontable,
        code.co_filename,
        code.co_linetable,
        code.co_name,
        code.co_names,
        code.co_qualname,
        *code.co_varnames,
        *code.co_freevars,
        *code.co_cellvars,
    ]


def fill_holes():
    """Fill every free block below the end of memory, and leave free memory after that end."""
    gc.collect()
    slack = bytes(SLACK_BYTES)
    end = id(slack)
    del slack
    size = LARGE_BLOCK_LIMIT
    while size > SMALL_BLOCK_LIMIT:
        _fill(size, end)
        size -= max(16, size >> 5)
    for size in range(SMALL_BLOCK_LIMIT, 16, -16):
        _fill(size, end)
    while id(block := object()) < end:
        _ballast.append(block)


def _fill(size, end):
    length = size - BYTES_OVERHEAD
    while id(block := bytes(length)) < end:
        _ballast.append(block)


def replace_next_run():
    """Let the next run fill the holes instead. A run of the same text frees the same blocks when it ends, which the
    next run uses.
    """
    run = _torl_driver.run

    def fill():
        _torl_driver.run = run
        _torl_driver.seed_generators(0)
        fill_holes()
        gc.collect()
        gc.freeze()
        gc.disable()

    _torl_driver.run = fill
