"""`check_wheel.py WHEEL`: fails unless the wheel runs where it says and holds what it should, and nothing else."""

import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

NEWEST_GLIBC = (2, 28)

NEEDED = (
    "torl/__init__.py",
    "torl/py.typed",
    "torl/_core.abi3.so",
    "torl/_core.pyi",
    "torl/demo/problems/train.jsonl",
    "torl/demo/problems/heldout.jsonl",
    "torl/demo/base_model/model.safetensors",
    "torl/demo/base_model/tokenizer.json",
    "torl/apps/view/static/index.html",
    "torl/apps/view/static/vendor/preact.mjs",
    "torl/report/vendor/plotly-basic.min.js",
)
UNWANTED = re.compile(r"(^|/)(tests|benchmarks|__pycache__|crates|rust)/|\.(pyc|rs)$")


def faults(names: Sequence[str], extension: bytes, presets: Sequence[str]) -> list[str]:
    """Errors in a wheel of these files, with this native extension, that should hold these presets."""
    held = set(names)
    found = [f"lacks {name}" for name in (*NEEDED, *(f"torl/{preset}" for preset in presets)) if name not in held]
    found += [f"holds {name}" for name in names if UNWANTED.search(name)]
    newer = sorted(version for version in glibc_versions(extension) if version > NEWEST_GLIBC)
    found += [f"needs GLIBC_{'.'.join(map(str, version))}" for version in newer]
    return found


def glibc_versions(extension: bytes) -> set[tuple[int, ...]]:
    """The versions of glibc whose symbols a shared object asks for: each is a separate string in its string table."""
    found = re.findall(rb"\0GLIBC_([0-9]+(?:\.[0-9]+)+)(?=\0)", extension)
    return {tuple(int(part) for part in version.split(b".")) for version in found}


def main(arguments: Sequence[str]) -> int:
    """Check one wheel; returns 1 if anything is wrong with it."""
    (path,) = arguments
    presets = [str(file.relative_to("python/torl")) for file in Path("python/torl").glob("*/**/*.toml")]
    presets += [str(file.relative_to("python/torl")) for file in Path("python/torl/recipes").glob("*/README.md")]
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        extension = wheel.read("torl/_core.abi3.so")
    found = faults(names, extension, presets)
    for fault in found:
        print(f"error: {path} {fault}", file=sys.stderr)
    if not found:
        newest = ".".join(map(str, max(glibc_versions(extension))))
        size = Path(path).stat().st_size / 1e6
        print(f"{path}: {len(names)} files, {size:.1f} MB, needs glibc {newest}, {len(presets)} presets")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
