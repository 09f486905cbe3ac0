"""A package read by `ast`, without importing it: its names, the members of its classes, the calls that fit them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Package:
    """A package in a directory of the same name."""

    directory: Path

    @cache  # noqa: B019 -- one per test run
    def module(self, name: str) -> ast.Module | None:
        """Return the tree of a module by its full name; None if it does not exist."""
        path = self.directory.parent.joinpath(*name.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return ast.parse(file.read_text(encoding="utf-8"))
        return None

    def defines(self, module: str, name: str) -> bool:
        """Whether `from module import name` works."""
        tree = self.module(module)
        return tree is not None and (self.module(f"{module}.{name}") is not None or name in bound_names(tree))

    def find(self, module: str, name: str) -> tuple[str, Definition]:
        """Return the module and the definition of a class or function, imported from another module perhaps."""
        tree = self.module(module)
        assert tree is not None, module
        for node in ast.walk(tree):
            if isinstance(node, Definition) and node.name == name:
                return module, node
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and name in {alias.name for alias in node.names}:
                return self.find(node.module, name)
        raise AssertionError(f"{module} does not define {name}")

    def members(self, module: str, name: str) -> dict[str, ast.AST]:
        """Return methods, fields and attributes of a class and its bases in the package, except abstract methods."""
        module, found = self.find(module, name)
        assert isinstance(found, ast.ClassDef)
        members: dict[str, ast.AST] = {}
        for base in found.bases:
            plain = base.value if isinstance(base, ast.Subscript) else base
            if isinstance(plain, ast.Name) and self._is_own(module, plain.id):
                members |= self.members(module, plain.id)
        for node in ast.walk(found):
            for target in assigned(node):
                if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                    members.setdefault(target.attr, node)
        for node in found.body:
            members |= {target.id: node for target in assigned(node) if isinstance(target, ast.Name)}
            if isinstance(node, Definition) and "abstractmethod" not in map(ast.unparse, node.decorator_list):
                members[node.name] = node
        return members

    def _is_own(self, module: str, name: str) -> bool:
        tree = self.module(module)
        assert tree is not None
        origins = [
            node.module or ""
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}
        ]
        classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        return name in classes or any(origin.split(".")[0] == self.directory.name for origin in origins)


def bound_names(tree: ast.Module) -> set[str]:
    """Return the names that a module binds anywhere outside of functions and classes."""
    names: set[str] = set()
    todo: list[ast.AST] = [*tree.body]
    while todo:
        node = todo.pop()
        if isinstance(node, Definition):
            names.add(node.name)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        names |= {target.id for target in assigned(node) if isinstance(target, ast.Name)}
        todo += ast.iter_child_nodes(node)
    return names


def assigned(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the targets of an assignment."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from target.elts if isinstance(target, ast.Tuple) else [target]
    elif isinstance(node, ast.AnnAssign):
        yield node.target


def misfit(function: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call, *, bound: bool) -> str | None:
    """Describe why a function does not accept the arguments of a call; None if it does.

    Args:
        function: Definition of the function.
        call: The call. Starred arguments fit everything.
        bound: Whether the function is a method, whose first parameter the call omits.
    """
    parameters = function.args
    positional = [parameter.arg for parameter in (*parameters.posonlyargs, *parameters.args)][bound:]
    named = {*positional, *(parameter.arg for parameter in parameters.kwonlyargs)}
    starred = any(isinstance(argument, ast.Starred) for argument in call.args)
    if len(call.args) > len(positional) and parameters.vararg is None and not starred:
        return f"takes {len(positional)} positional arguments"
    keywords = [keyword.arg for keyword in call.keywords]
    if unknown := [name for name in keywords if name and name not in named and parameters.kwarg is None]:
        return f"has no argument {unknown[0]}"
    required = positional[: len(positional) - len(parameters.defaults)]
    if missing := set(required[len(call.args) :]) - set(keywords):
        return None if starred or None in keywords else f"needs {min(missing)}"
    return None
