"""The files of the working tree as they are, committed or not. Results of tests are kept for them."""

import hashlib
import subprocess
from pathlib import Path

RESULTS, PAGE = "docs/evidence/tiers.jsonl", "docs/evidence/tests.md"
"""Files that are written with the results; a hash of the tree leaves them out."""


def files(root: Path) -> list[str]:
    """Return the paths of all files that git tracks or would add, relative to `root`."""
    listing = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return sorted(name for name in set(listing.split("\0")) if (root / name).is_file())


def tree_hash(root: Path) -> str:
    """Return a hash of the names and contents of all files but `RESULTS` and `PAGE`."""
    digest = hashlib.sha256()
    for name in files(root):
        if name not in (RESULTS, PAGE):
            digest.update(f"{name}\0{hashlib.sha256((root / name).read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def commit(root: Path) -> str:
    """Return the commit, with "(dirty)" if another file than `RESULTS` and `PAGE` differs from it."""
    changed = _git(root, "status", "--porcelain", "--", ".", f":(exclude){RESULTS}", f":(exclude){PAGE}")
    return _git(root, "rev-parse", "--short=8", "HEAD").strip() + (" (dirty)" if changed else "")


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout
