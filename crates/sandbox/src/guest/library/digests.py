"""`hashlib.pbkdf2_hmac` and `hashlib.scrypt`, which are parts of OpenSSL elsewhere.

Sources: RFC 8018, section 5.2; RFC 7914, sections 3 to 6.
"""

import hashlib
import hmac
import struct

_WORD = 0xFFFFFFFF
# n * r * p that takes some ten seconds.
_MAX_WORK = 1 << 15
# The additions of a Salsa20 double round: target, its two summands, and the rotation.
_ROUND = (
    (4, 0, 12, 7), (8, 4, 0, 9), (12, 8, 4, 13), (0, 12, 8, 18), (9, 5, 1, 7), (13, 9, 5, 9), (1, 13, 9, 13),
    (5, 1, 13, 18), (14, 10, 6, 7), (2, 14, 10, 9), (6, 2, 14, 13), (10, 6, 2, 18), (3, 15, 11, 7), (7, 3, 15, 9),
    (11, 7, 3, 13), (15, 11, 7, 18), (1, 0, 3, 7), (2, 1, 0, 9), (3, 2, 1, 13), (0, 3, 2, 18), (6, 5, 4, 7),
    (7, 6, 5, 9), (4, 7, 6, 13), (5, 4, 7, 18), (11, 10, 9, 7), (8, 11, 10, 9), (9, 8, 11, 13), (10, 9, 8, 18),
    (12, 15, 14, 7), (13, 12, 15, 9), (14, 13, 12, 13), (15, 14, 13, 18),
)  # fmt: skip


def pbkdf2_hmac(hash_name, password, salt, iterations, dklen=None):
    """Password based key derivation function 2 (PKCS #5 v2.0) with HMAC as pseudorandom function."""
    if not isinstance(hash_name, str):
        raise TypeError(f"pbkdf2_hmac() argument 'hash_name' must be str, not {type(hash_name).__name__}")
    password, salt = bytes(memoryview(password)), bytes(memoryview(salt))
    size = hashlib.new(hash_name).digest_size
    if dklen is None:
        dklen = size
    if iterations < 1:
        raise ValueError("iteration value must be greater than 0.")
    if dklen < 1:
        raise ValueError("key length must be greater than 0.")
    digest, key, number, convert = hmac.digest, b"", 0, int.from_bytes
    while len(key) < dklen:
        number += 1
        last = digest(password, salt + number.to_bytes(4), hash_name)
        total = convert(last)
        for _ in range(iterations - 1):
            last = digest(password, last, hash_name)
            total ^= convert(last)
        key += total.to_bytes(size)
    return key[:dklen]


def _function():
    """Compile the function that applies Salsa20/8 to sixteen words, with its rounds written out."""
    names = ", ".join(f"x{number}" for number in range(16))
    lines = [f"def salsa(words):\n {names} = words\n for _ in range(4):"]
    for target, one, other, rotation in _ROUND:
        lines.append(f"  t = x{one} + x{other} & {_WORD}")
        lines.append(f"  x{target} ^= t << {rotation} & {_WORD} | t >> {32 - rotation}")
    sums = ", ".join(f"x{number} + words[{number}] & {_WORD}" for number in range(16))
    names_of_module = {"__name__": __name__}
    exec("\n".join([*lines, f" return [{sums}]"]), names_of_module)
    return names_of_module["salsa"]


_salsa = _function()


def _mix_block(block):
    """`scryptBlockMix`, of 32 r words."""
    last, even, odd = block[-16:], [], []
    for start in range(0, len(block), 16):
        last = _salsa([one ^ other for one, other in zip(last, block[start : start + 16])])
        (odd if start % 32 else even).extend(last)
    return even + odd


def _mix(data, n):
    """`scryptROMix`."""
    form = f"<{len(data) // 4}I"
    block, blocks = list(struct.unpack(form, data)), []
    for _ in range(n):
        blocks.append(block)
        block = _mix_block(block)
    for _ in range(n):
        block = _mix_block([one ^ other for one, other in zip(block, blocks[block[-16] & n - 1])])
    return struct.pack(form, *block)


def scrypt(password, *, salt, n, r, p, maxmem=0, dklen=64):
    """scrypt password-based key derivation function."""
    if n < 2 or n & n - 1:
        raise ValueError("n must be a power of 2.")
    if dklen < 1 or dklen > 0x7FFFFFFF:
        raise ValueError("dklen must be greater than 0 and smaller than 2147483647")
    needed = 128 * r * (n + p + 2)
    if r < 1 or p < 1 or needed > (maxmem or 32 << 20):
        raise ValueError("Invalid parameter combination for n, r, p, maxmem.")
    if n * r * p > _MAX_WORK:
        raise NotImplementedError(
            f"scrypt with n={n}, r={r} and p={p} would take minutes: it is computed by Python code here. "
            "Use a smaller n, or hashlib.pbkdf2_hmac"
        )
    data = pbkdf2_hmac("sha256", password, salt, 1, 128 * r * p)
    pieces = [_mix(data[start : start + 128 * r], n) for start in range(0, len(data), 128 * r)]
    return pbkdf2_hmac("sha256", password, b"".join(pieces), 1, dklen)


def install():
    for function in (pbkdf2_hmac, scrypt):
        function.__module__ = "hashlib"
        setattr(hashlib, function.__name__, function)
