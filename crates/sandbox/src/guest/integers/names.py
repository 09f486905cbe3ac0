"""numpy's names for the default integer, as with 64 bits. Evaluated in the guest before anything else.

The code of the guest is changed for that (`mod.rs`); this module changes the part of numpy that is written in Python.
`intp` stays the integer of a pointer's width, because compiled libraries use that name to allocate space for real
pointers. In numpy's own Python functions it means the default integer.
"""

import sys
import types

import numpy
import numpy._core.arrayprint
import numpy.ma  # not imported with numpy, and written in Python like the rest

POINTER, DEFAULT = numpy.int32, numpy.int64
WIDE = {"int_": DEFAULT, "uint": numpy.uint64}
WIDE_IN_NUMPY = WIDE | {"intp": DEFAULT, "uintp": numpy.uint64}


def widen():
    numpy.__dict__.update(WIDE)
    # By name, as in `dtype="int"`.
    numpy.sctypeDict.update({"int": DEFAULT, **WIDE})
    own = types.ModuleType("numpy")
    own.__dict__.update(numpy.__dict__)
    own.__dict__.update(WIDE_IN_NUMPY)
    for module in _written_in_python():
        for name, kind in WIDE_IN_NUMPY.items():
            if name in module.__dict__:
                setattr(module, name, kind)
        for name in ("np", "numpy"):
            if module.__dict__.get(name) is numpy:
                setattr(module, name, own)
    # The types whose names are omitted when an array is printed.
    shown = numpy._core.arrayprint._typelessdata
    shown[shown.index(POINTER)] = DEFAULT


def _written_in_python():
    for name, module in list(sys.modules.items()):
        if name.startswith("numpy.") and getattr(module, "__file__", None):
            yield module


widen()
