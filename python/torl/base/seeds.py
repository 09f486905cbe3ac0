"""Derived seeds: each use of random numbers has its own seed, independent of the order in which episodes end."""

import hashlib


def derive_seed(*parts: int | str) -> int:
    """Derive a 63-bit seed from a path of names and numbers, for example (run seed, step, problem, sample, turn).

    The seed is the same in all processes, machines and versions of Python (BLAKE2b; `hash` is salted). A number and its
    text are different parts, and so are ("a", "b") and ("ab",).
    """
    text = "".join(f"{type(part).__name__}:{len(str(part))}:{part};" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1
