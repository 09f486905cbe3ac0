"""Look at runs in the browser, also while they are written.

torl view RUN...            serve the page of runs, evaluations or files of trajectories
torl view --index-only RUN  build the index and exit
torl view FILE              a file of another library

LABEL=RUN names a run. The page is served on this machine only; another --host needs the token in the printed address.
The formats of other libraries are found from a file's contents:
"""

import argparse
import hashlib
import importlib
import os
import secrets
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from torl.base.errors import ConfigError
from torl.base.paths import labelled_paths
from torl.base.trust import add_trust_option, import_from_here
from torl.base.version import __version__
from torl.commands.command import reports_errors
from torl.run.records.files import atomic_write
from torl.run.records.rows import encode_row
from torl_lab.exchange import foreign_format, format_names, model_decoder, model_token_bytes, read_foreign
from torl_lab.view.indexing import Indexer
from torl_lab.view.panels import installed_panels
from torl_lab.view.sources import INDEX_FILE, Target, view_cache


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        "torl view",
        description=f"{__doc__}{format_names()}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="directory of a run or an evaluation, or file of trajectories; LABEL=RUN names it",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    parser.add_argument("--port", type=int, default=8642, help="port; 0 selects a free one (default %(default)s)")
    parser.add_argument(
        "--index",
        metavar="DIRECTORY",
        type=Path,
        help=f"directory of the indexes; unset writes {INDEX_FILE} into each run, or into the cache if it is read-only",
    )
    parser.add_argument(
        "--tokenizer",
        metavar="MODEL",
        help="model of the tokens in a file: a directory, or a name in the Hub's cache; a run knows its own",
    )
    parser.add_argument("--index-only", action="store_true", help="bring the indexes up to date and exit")
    add_trust_option(parser)
    options = parser.parse_args(arguments)
    if options.trust:
        import_from_here()
    if options.tokenizer is not None:
        model_token_bytes(options.tokenizer)  # an error now, not in the process that indexes
    installed_panels()  # an error now, not at the first request
    targets = []
    for label, path in labelled_paths(options.runs).items():
        own = own_file(path, options.tokenizer)
        origin = None if own == path else path
        targets.append(Target(label, own, options.tokenizer, origin, trust=options.trust))
        targets[-1].check()
    if options.index_only:
        for target in targets:
            _index(target, options.index)
    else:
        _serve(targets, options)
    return 0


def _index(target: Target, cache: Path | None) -> None:
    path = target.index_path(cache)

    def report(done: float) -> None:
        if sys.stderr.isatty():
            print(f"\r{target.label}: {done:.0%}", end="", file=sys.stderr)

    with closing(Indexer(target, path)) as indexer:
        indexer.update(report)
        for each in indexer.unreadable:
            print(f"warning: {each}", file=sys.stderr)
        indexer.store_vocabulary()
    print(path)


def _serve(targets: Sequence[Target], options: argparse.Namespace) -> None:
    try:
        server = importlib.import_module("torl_lab.view.server")
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed: pip install 'torl[view]'") from error
    server.serve(targets, options.index, options.host, options.port, secrets.token_urlsafe(24))


def own_file(path: Path, tokenizer: str | None = None) -> Path:
    """Return a file of torl with the trajectories of a file; directories and files of torl are returned as they are.

    The file is written again when the original has changed.

    Args:
        path: File or directory.
        tokenizer: Model whose tokenizer separates the texts of several turns. Optional.

    Raises:
        ConfigError: The user has no cache directory.
        DataError: The tokenizer cannot be read.
        RecordError: The file is damaged.
    """
    if not path.is_file() or foreign_format(path) is None:
        return path
    stat = path.stat()
    identity = f"{path.resolve()}\n{stat.st_size}\n{stat.st_mtime_ns}\n{tokenizer}\n{__version__}"
    made = (
        view_cache(str(path), "use torl convert")
        / hashlib.sha256(os.fsencode(identity)).hexdigest()[:16]
        / f"{path.stem}.jsonl"
    )
    if not made.exists():
        decode = None if tokenizer is None else model_decoder(tokenizer)
        made.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(made) as file:
            for row in read_foreign(path, decode):
                file.write(encode_row(row))
    return made
