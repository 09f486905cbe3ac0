"""What was judged before: a pair costs a grader process once in a run, however many responses give the same answer."""

import hashlib
import threading

from torl.rewards.verdict import Verdict

CAPACITY = 200_000
"""Pairs that are remembered; the oldest are forgotten first. One takes some 300 bytes."""


class VerdictCache:
    """The verdicts of a grader. Safe to use from many threads: while one judges a pair, the others wait for it."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        """Remember nothing yet."""
        self._capacity = capacity
        self._verdicts: dict[bytes, Verdict] = {}
        self._judging: set[bytes] = set()
        self._changed = threading.Condition()

    def get(self, pair: bytes) -> Verdict | None:
        """The verdict on a pair. If there is none, the caller judges it and says so with `settle`, whatever happens."""
        with self._changed:
            self._changed.wait_for(lambda: pair not in self._judging)
            if pair not in self._verdicts:
                self._judging.add(pair)
            return self._verdicts.get(pair)

    def put(self, pair: bytes, verdict: Verdict | None) -> None:
        """Remember the verdict; None if there is none that would be the same again."""
        with self._changed:
            self._judging.discard(pair)
            if verdict is not None:
                self._verdicts[pair] = verdict
            if len(self._verdicts) > self._capacity:
                del self._verdicts[next(iter(self._verdicts))]
            self._changed.notify_all()


def pair_key(reference: str, answer: str) -> bytes:
    """What stands for a pair, however long its texts are."""
    first, second = (text.encode("utf-8", errors="surrogatepass") for text in (reference, answer))
    return hashlib.blake2b(len(first).to_bytes(8) + first + second, digest_size=16).digest()
