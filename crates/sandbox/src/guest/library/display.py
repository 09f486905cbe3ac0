"""The package `IPython` as far as programs use it to show things, of which the text is shown."""

import builtins
import types

import _torl_imports

VERSION = "8.12.3"


class DisplayObject:
    """An object that has a rich display elsewhere."""

    def __init__(self, data=None, url=None, filename=None, metadata=None, **options):
        self.data, self.url, self.filename, self.metadata = data, url, filename, metadata or {}
        vars(self).update(options)
        if filename is not None and data is None:
            with open(filename, "rb") as file:
                self.data = file.read()

    def __repr__(self):
        return f"<{type(self).__module__}.{type(self).__name__} object>"


class Pretty(DisplayObject):
    def __repr__(self):
        return str(self.data)


class DisplayHandle:
    """A display that can be replaced: each version is shown."""

    def __init__(self, display_id=None):
        self.display_id = display_id or f"{id(self):032x}"

    def display(self, obj, **options):
        display(obj)

    update = display


_KINDS = ("Audio", "Code", "GeoJSON", "HTML", "IFrame", "Image", "JSON", "Javascript", "Latex", "Markdown", "Math", "SVG", "Video")
KINDS = {name: type(name, (DisplayObject,), {"__module__": "IPython.core.display"}) for name in _KINDS}
KINDS |= {"DisplayObject": DisplayObject, "Pretty": Pretty, "DisplayHandle": DisplayHandle}
for _kind in (DisplayObject, Pretty, DisplayHandle):
    _kind.__module__ = "IPython.core.display"


def display(*objs, display_id=None, **options):
    """Print objects, as a notebook shows them if this is one."""
    getattr(builtins, "display", print)(*objs)
    return DisplayHandle(display_id if isinstance(display_id, str) else None) if display_id else None


def clear_output(wait=False):
    """Clear the output elsewhere. Printed text stays here."""


def get_ipython():
    """Return None, as outside of IPython: there are no magics."""


def _module(name, **names):
    module = types.ModuleType(name)
    vars(module).update(names)
    return module


def install():
    shown = dict(KINDS, display=display, clear_output=clear_output)
    top = dict(display=display, get_ipython=get_ipython, __version__=VERSION, version_info=(8, 12, 3, ""))
    modules = {
        "IPython": top,
        "IPython.display": shown,
        "IPython.core": {"__path__": []},
        "IPython.core.display": shown,
        "IPython.core.getipython": {"get_ipython": get_ipython},
    }
    for name, names in modules.items():
        _torl_imports.Finder.made[name] = lambda name=name, names=names: _module(name, **names)
