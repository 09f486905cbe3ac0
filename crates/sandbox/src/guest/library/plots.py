"""matplotlib without a data directory: its data is in an archive inside the archive of the library.

On import, its fonts and styles are added to the run's files; all other files are added on demand.
"""

import io
import os
import sys
import zipfile
import zipimport

import _torl_imports

HOME = "/var/lib/matplotlib"
DATA = HOME + "/mpl-data"
INNER_ARCHIVE = "matplotlib/mpl-data.zip"
# Settings for the import of matplotlib: user files outside the run's directory, and a backend without a screen.
ENVIRONMENT = {"MPLCONFIGDIR": "/tmp/matplotlib", "MPLBACKEND": "agg"}

# A program may replace them, and import matplotlib then.
_open, _mkdir, _exists, _fspath = open, os.mkdir, os.path.exists, os.fspath

# Open while matplotlib is imported. It takes ten megabytes, which a session would keep.
_archive = None


def _open_archive():
    library = next(entry for entry in sys.path if entry.endswith(".zip"))
    return zipfile.ZipFile(io.BytesIO(zipimport.zipimporter(library).get_data(f"{library}/{INNER_ARCHIVE}")))


def _make_directories(name):
    if not _exists(name):
        _make_directories(name.rpartition("/")[0])
        _mkdir(name)


def present(path):
    """Extract the file at `path`, if it belongs to matplotlib and is missing."""
    name = _fspath(path)
    if isinstance(name, str) and name.startswith(DATA + "/") and not _exists(name):
        try:
            content = (_archive or _open_archive()).read(name[len(DATA) + 1 :])
        except KeyError:
            return
        _make_directories(name.rpartition("/")[0])
        with _open(name, "wb") as file:
            file.write(content)


def _execute_package(module, execute):
    """Import matplotlib itself as if it were located next to its data."""
    global _archive
    _archive = _open_archive()
    for name in _archive.namelist():
        if name.startswith(("matplotlibrc", "stylelib/", "fonts/")) and not name.endswith("/"):
            present(f"{DATA}/{name}")
    _archive = None
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    place, module.__file__ = module.__file__, HOME + "/__init__.pyc"
    try:
        execute()
        # They are requested once, and cached.
        module.get_data_path(), module.get_configdir(), module.get_cachedir()
    finally:
        module.__file__ = place
        for name, value in before.items():
            if value is None:
                del os.environ[name]


def _execute_cbook(module, execute):
    execute()
    data_path = module._get_data_path

    def presented_data_path(*parts):
        path = data_path(*parts)
        present(path)
        return path

    module._get_data_path = presented_data_path


def _execute_backend_bases(module, execute):
    execute()
    # As on a machine without a screen.
    module.FigureManagerBase.show = lambda self: None


def install():
    _torl_imports.Finder.modules.update(
        {
            "matplotlib": _execute_package,
            "matplotlib.cbook": _execute_cbook,
            "matplotlib.backend_bases": _execute_backend_bases,
        }
    )
