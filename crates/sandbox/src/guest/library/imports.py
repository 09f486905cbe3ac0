"""Modules that are imported on demand and need changes in this environment, and imports that are not interrupted."""

import _frozen_importlib
import importlib.machinery
import sys

import _torl_driver


class Finder:
    """An importer of the modules that need changes; leaves all others to the next importer."""

    # By name: the function called instead of their execution, with the module and the original function.
    modules = {}
    # By name: the function that returns a module without a file.
    made = {}

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        make = cls.made.get(name)
        if make is not None:
            return importlib.machinery.ModuleSpec(name, Maker(make), is_package="." not in name)
        execute = cls.modules.get(name)
        if execute is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = Loader(spec.loader, execute)
        return spec


class Loader:
    """A loader that wraps the execution of its module."""

    def __init__(self, loader, execute):
        self._loader, self._execute = loader, execute

    def exec_module(self, module):
        self._execute(module, lambda: self._loader.exec_module(module))

    def __getattr__(self, name):
        return getattr(self._loader, name)


class Maker:
    """A loader of a module that a function returns."""

    def __init__(self, make):
        self._make = make

    def create_module(self, spec):
        return self._make()

    def exec_module(self, module):
        pass


# A module that is left half imported cannot be used: some cannot even be imported again. The function is named like the
# import system's own, whose frames tracebacks leave out. A pending interrupt arrives at the end of the first call.
_UNINTERRUPTED = """
def _find_and_load(name, import_):
    global _importing
    if _importing:
        return find_and_load(name, import_)
    _importing = True
    try:
        write(descriptor, b"\\1")
        return find_and_load(name, import_)
    finally:
        _importing = False
        write(descriptor, b"\\0")
"""


def install():
    sys.meta_path.insert(0, Finder)
    names = {
        "_importing": False,
        "descriptor": _torl_driver.PROGRESS_DESCRIPTOR,
        "find_and_load": _frozen_importlib._find_and_load,
        "write": _torl_driver._write,
    }
    exec(compile(_UNINTERRUPTED, "<frozen importlib._bootstrap>", "exec"), names)
    _frozen_importlib._find_and_load = names["_find_and_load"]
