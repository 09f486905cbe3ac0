"""`check_wheel.py WHEEL ...`: fails unless a wheel runs where it says and holds what it should, and nothing else."""

import re
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

NEWEST_GLIBC = (2, 28)

SANDBOX = (
    "torl_sandbox/__init__.py",
    "torl_sandbox/py.typed",
    "torl_sandbox/_core.abi3.so",
    "torl_sandbox/_core.pyi",
    "torl_sandbox/servers/fusion.py",
)
TORL = (
    "torl/__init__.py",
    "torl/py.typed",
    "torl/_core.abi3.so",
    "torl/_core.pyi",
    "torl/demo/problems/train.jsonl",
    "torl/demo/problems/heldout.jsonl",
    "torl/demo/base_model/model.safetensors",
    "torl/demo/base_model/tokenizer.json",
    "torl_lab/__init__.py",
    "torl_lab/py.typed",
    "torl_lab/view/static/index.html",
    "torl_lab/view/static/vendor/preact.mjs",
)
UNWANTED = re.compile(r"(^|/)(tests|benchmarks|__pycache__|crates|rust)/|\.(pyc|rs)$")


def faults(needed: Sequence[str], files: Mapping[str, bytes]) -> list[str]:
    """Errors in a wheel of these files, with the contents of its native extensions, that should hold those."""
    found = [f"lacks {name}" for name in needed if name not in files]
    packages = {name.partition("/")[0] for name in needed}
    for name, content in files.items():
        package = name.partition("/")[0]
        if UNWANTED.search(name) or (package not in packages and not package.endswith(".dist-info")):
            found.append(f"holds {name}")
        newer = sorted(version for version in glibc_versions(content) if version > NEWEST_GLIBC)
        found += [f"needs GLIBC_{'.'.join(map(str, version))}" for version in newer]
    return found


def glibc_versions(extension: bytes) -> set[tuple[int, ...]]:
    """The versions of glibc whose symbols a shared object asks for: each is a separate string in its string table."""
    found = re.findall(rb"\0GLIBC_([0-9]+(?:\.[0-9]+)+)(?=\0)", extension)
    return {tuple(int(part) for part in version.split(b".")) for version in found}


def needed_by(wheel: Path) -> tuple[str, ...]:
    """The files that a wheel must hold: the sandbox's alone, or torl's with the sandbox's."""
    if wheel.name.startswith("torl_sandbox"):
        return SANDBOX
    presets = [str(file.relative_to("python")) for file in Path("python/torl").glob("*/**/*.toml")]
    presets += [str(file.relative_to("python")) for file in Path("python/torl/recipes").glob("*/README.md")]
    return (*TORL, *SANDBOX, *presets)


def check(path: Path) -> bool:
    """Print the faults of a wheel, or its size if it is whole. Returns whether it is whole."""
    needed = needed_by(path)
    with zipfile.ZipFile(path) as wheel:
        files = {name: wheel.read(name) if name.endswith(".so") else b"" for name in wheel.namelist()}
    found = faults(needed, files)
    for fault in found:
        print(f"error: {path} {fault}", file=sys.stderr)
    if not found:
        newest = ".".join(map(str, max(glibc_versions(b"".join(files.values())))))
        print(f"{path}: {len(files)} files, {path.stat().st_size / 1e6:.1f} MB, needs glibc {newest}")
    return not found


def main(arguments: Sequence[str]) -> int:
    """Check wheels; returns 1 at the first with a fault."""
    return 0 if all(check(Path(argument)) for argument in arguments) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
