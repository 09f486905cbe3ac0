"""Seeds that name what they are for: the same run asks for the same random numbers, in whatever order episodes end."""

import hashlib


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed from a path of names and numbers, for example (run seed, step, problem, sample, turn).

    Stable over processes, machines and versions of Python (BLAKE2b; `hash` is salted). A number and the text
    of it are different parts, and so are ("a", "b") and ("ab",).
    """
    text = "".join(f"{type(part).__name__}:{len(str(part))}:{part};" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1
