"""Look at runs in the browser, also while they are written.

torl view RUN...            serve the page of runs, evaluations or files of trajectories
torl view --index-only RUN  build the index and exit
torl view FILE              a file of ATIF, Inspect, verifiers, TRL, verl, slime or miles

LABEL=RUN names a run. The page is served on this machine only; another --host needs the token in the printed address.
"""

import argparse
import importlib
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from torl.base.errors import ConfigError, DataError, TorlError
from torl.base.paths import labelled_paths
from torl.base.trust import add_trust_option, import_from_here
from torl_lab.exchange import model_token_bytes
from torl_lab.view.imported import own_file
from torl_lab.view.indexing import Indexer, Progress
from torl_lab.view.panels import installed_panels
from torl_lab.view.sources import INDEX_FILE, Target


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        "torl view", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
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
    try:
        if options.tokenizer is not None:
            model_token_bytes(options.tokenizer)  # an error now, not in the process that indexes
        installed_panels()  # an error now, not at the first request
        targets = [_target(label, path, options) for label, path in labelled_paths(options.runs).items()]
        for target in targets:
            target.check()
        if options.index_only:
            for target in targets:
                _index(target, options.index)
        else:
            _serve(targets, options)
    except (ConfigError, DataError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (TorlError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _target(label: str, path: Path, options: argparse.Namespace) -> Target:
    own = own_file(path, options.tokenizer)
    return Target(label, own, options.tokenizer, None if own == path else path, trust=options.trust)


def _index(target: Target, cache: Path | None) -> None:
    path = target.index_path(cache)
    indexer = Indexer(target, path)

    def report(progress: Progress) -> None:
        if sys.stderr.isatty():
            print(f"\r{target.label}: {progress.done / max(1, progress.total):.0%}", end="", file=sys.stderr)

    try:
        indexer.update(report)
        for each in indexer.unreadable:
            print(f"warning: {each}", file=sys.stderr)
        indexer.store_vocabulary()
    finally:
        indexer.close()
    print(path)


def _serve(targets: Sequence[Target], options: argparse.Namespace) -> None:
    try:
        serving = importlib.import_module("torl_lab.view.serving")
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed: pip install 'torl[view]'") from error
    serving.serve(targets, options.index, options.host, options.port, secrets.token_urlsafe(24))
