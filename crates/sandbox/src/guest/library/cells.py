"""`multiprocessing.Value` and `Array`: shared values, which need no shared memory here."""

import struct
import threading

# Bits of the integers on a 64-bit Linux, which programs expect, and whether they are signed.
INTEGERS = {"b": 8, "h": 16, "i": 32, "l": 64, "q": 64}
CTYPES = {
    "c_byte": "b", "c_ubyte": "B", "c_short": "h", "c_ushort": "H", "c_int": "i", "c_uint": "I", "c_long": "l",
    "c_ulong": "L", "c_longlong": "q", "c_ulonglong": "Q", "c_float": "f", "c_double": "d", "c_bool": "?",
    "c_char": "c", "c_wchar": "u", "c_int8": "b", "c_int16": "h", "c_int32": "i", "c_int64": "q",
}  # fmt: skip


def converter(kind):
    """Return a function that converts a value like a variable of this C type."""
    code = kind if isinstance(kind, str) else CTYPES.get(getattr(kind, "__name__", ""), "")
    if code.lower() in INTEGERS:
        return lambda value: _wrap(value, INTEGERS[code.lower()], code.islower())
    if code == "f":
        return lambda value: struct.unpack("f", struct.pack("f", value))[0]
    simple = {"d": float, "?": bool, "c": bytes, "u": str}
    if code not in simple:
        raise TypeError(f"{kind!r} is not a shared value type; use one of b, h, i, l, q, B, H, I, L, Q, f, d, c, u")
    return simple[code]


def _wrap(value, bits, signed):
    if not isinstance(value, int):
        raise TypeError(f"an integer is required (got type {type(value).__name__})")
    value %= 1 << bits
    return value - (1 << bits) if signed and value >> (bits - 1) else value


class Synchronized:
    """An object with its own lock."""

    def __init__(self, lock=True):
        self._lock = threading.RLock() if lock is True else lock

    def get_lock(self):
        return self._lock

    def get_obj(self):
        return self

    def acquire(self, *options):
        return self._lock.acquire(*options)

    def release(self):
        self._lock.release()

    def __enter__(self):
        return self._lock.__enter__()

    def __exit__(self, *error):
        return self._lock.__exit__(*error)


class Value(Synchronized):
    def __init__(self, kind, value=0, *, lock=True):
        super().__init__(lock)
        self._convert = converter(kind)
        self.value = value

    @property
    def value(self):
        return self._value

    @value.setter
    def value(self, value):
        self._value = self._convert(value)


class Array(Synchronized):
    def __init__(self, kind, content, *, lock=True):
        super().__init__(lock)
        self._convert = converter(kind)
        self._items = [self._convert(item) for item in ([0] * content if isinstance(content, int) else content)]

    def __len__(self):
        return len(self._items)

    def __iter__(self):
        return iter(self._items)

    def __getitem__(self, place):
        return self._items[place]

    def __setitem__(self, place, value):
        if not isinstance(place, slice):
            self._items[place] = self._convert(value)
            return
        values = [self._convert(item) for item in value]
        if len(values) != len(self._items[place]):
            raise ValueError("Can only assign sequence of same size")
        self._items[place] = values


def RawValue(kind, value=0):
    return Value(kind, value, lock=None)


def RawArray(kind, content):
    return Array(kind, content, lock=None)
