"""A digest of a Python definition and of every one of this project that it can reach by name.

    source_digest("tests.kernels.test_gemm", "test_no_rows")

Functions, classes and constants are definitions. One reaches another if it names it, or its
attribute through a module's name, also in an annotation, a decorator or a nested import. A test
reaches the fixtures that its arguments name, a string the module that it names, and a search for an
operator's part (`hk_backend.operators`) every module of the room. Comments, docstrings and line
breaks do not count.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.proof.kernel_digest import digest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "tests": ROOT / "tests",
    "hk_backend": ROOT / "hk_backend",
    "hk_vllm": ROOT / "integration" / "hk_vllm",
    "hk_sglang": ROOT / "integration" / "hk_sglang",
    "bench_serving": ROOT / "bench_serving",
}
"""Folders of the project's packages, by the name under which they are imported."""

_DOTTED = re.compile(r"\w+(\.\w+)+")
DUMP: dict[str, Any] = {"show_empty": True} if sys.version_info >= (3, 13) else {}
"""Options that make every Python print a tree as 3.11 does."""


@dataclass(frozen=True, order=True)
class Definition:
    """A name at the top of a module; an empty name stands for the whole module."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module


@functools.cache
def source_digest(module: str, name: str) -> str:
    """The digest of one definition. Raises `ValueError` if the project has no such one."""
    if path_of(module) is None or name not in _table(module):
        raise ValueError(f"{module}.{name} is not a definition of this project")
    parts: list[str] = []
    for each in sorted(reached(module, name)):
        parts += [str(each), _meaning(each)]
    return digest(*parts)


@functools.cache
def reached(module: str, name: str) -> frozenset[Definition]:
    """The definition itself, those that it names, and theirs."""
    found: set[Definition] = set()
    left = [Definition(module, name)]
    while left:
        each = left.pop()
        if each not in found:
            found.add(each)
            left += _references(each)
    return frozenset(found)


@functools.cache
def _references(of: Definition) -> tuple[Definition, ...]:
    """The definitions that one names itself."""
    found: set[Definition] = set()
    for node in _nodes(of):
        imports = dict(_imports(node, of.module))
        for names in _chains(node):
            root = names[0]
            target = imports.get(root) or _table(of.module).get(root)
            if isinstance(target, str):
                found |= set(_resolve(target, names[1:]))
            elif target is not None and root != of.name:
                found.add(Definition(of.module, root))
        found |= {Definition(name, "") for name in (*_named_modules(node), *_searched(node))}
        if isinstance(node, ast.FunctionDef):
            found |= set(_fixtures(of.module, node))
    return tuple(sorted(found))


def _nodes(of: Definition) -> list[ast.stmt]:
    if not of.name:
        return _tree(of.module).body
    target = _table(of.module)[of.name]
    return [] if isinstance(target, str) else list(target)


def _named_modules(node: ast.AST) -> Iterator[str]:
    """Modules of the project that strings name, for `python -m` or `import_module`."""
    for each in ast.walk(node):
        text = each.value if isinstance(each, ast.Constant) else None
        if isinstance(text, str) and _DOTTED.fullmatch(text) and path_of(text) is not None:
            yield text


def _searched(node: ast.AST) -> Iterator[str]:
    """Modules of the rooms in which `operators.part` looks, as in `part("devices.hip", name)`."""
    for each in ast.walk(node):
        match each:
            case ast.Call(func=ast.Name(id="part"), args=[ast.Constant(value=str(room)), *_]):
                inside = f"hk_backend.{room}."
                yield from (name for name in modules_of("hk_backend") if name.startswith(inside))


def _fixtures(module: str, test: ast.FunctionDef) -> Iterator[Definition]:
    """Definitions in conftest modules around `module` that the test's arguments name."""
    package = module
    while package := package.rpartition(".")[0]:
        conftest = f"{package}.conftest"
        if path_of(conftest) is not None:
            for argument in test.args.args:
                if argument.arg in _table(conftest):
                    yield Definition(conftest, argument.arg)


def _resolve(target: str, attributes: tuple[str, ...]) -> Iterator[Definition]:
    """Definitions that a dotted name stands for, through the imports of packages."""
    module, rest = target, attributes
    while path_of(module) is None and "." in module:
        module, _, last = module.rpartition(".")
        rest = (last, *rest)
    while rest and path_of(f"{module}.{rest[0]}") is not None:
        module, rest = f"{module}.{rest[0]}", rest[1:]
    if path_of(module) is None:
        return  # another project's
    if not rest:
        yield Definition(module, "")
        return
    found = _table(module).get(rest[0])
    if isinstance(found, str):
        yield from _resolve(found, rest[1:])
    else:  # an unknown name may be made as the module runs: then all of it counts
        yield Definition(module, rest[0] if found else "")


@functools.cache
def _table(module: str) -> dict[str, tuple[ast.stmt, ...] | str]:
    """Each name at the top of a module, with the statements that define it or its import."""
    found: dict[str, tuple[ast.stmt, ...] | str] = {}
    for node in _tops(_tree(module).body):
        for alias, target in _imports(node, module, nested=False):
            if alias == "*":
                found |= {name: f"{target}.{name}" for name in _table(target)}
            else:
                found[alias] = target
        for name in _defined(node):
            before = found.get(name, ())
            found[name] = (node,) if isinstance(before, str) else (*before, node)
    return found


def _tops(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements at the top, also within `if` and `try`."""
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from _tops([*node.body, *node.orelse])
        else:
            yield node


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for each in (each for target in targets for each in ast.walk(target)):
            if isinstance(each, ast.Name):
                yield each.id


def _imports(node: ast.AST, module: str, *, nested: bool = True) -> Iterator[tuple[str, str]]:
    """Names that imports bind, each with the dotted name that it stands for."""
    for each in ast.walk(node) if nested else (node,):
        if isinstance(each, ast.Import):
            for alias in each.names:
                name = alias.asname or alias.name.partition(".")[0]
                yield name, alias.name if alias.asname else name
        elif isinstance(each, ast.ImportFrom):
            base = _base(each, module)
            for alias in each.names:
                target = base if alias.name == "*" else f"{base}.{alias.name}"
                if alias.name != "*" or path_of(base) is not None:
                    yield alias.asname or alias.name, target


def _base(node: ast.ImportFrom, module: str) -> str:
    if not node.level:
        return node.module or ""
    is_package = file_of(module).name == "__init__.py"
    parts = module.split(".")
    kept = parts[: len(parts) - node.level + is_package]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _chains(node: ast.AST) -> Iterator[tuple[str, ...]]:
    """Names with all their attributes: of `a.b.c` ("a", "b", "c"), and not "a" alone."""
    inner: set[ast.AST] = set()
    for each in ast.walk(node):  # outer nodes come before inner ones
        attributes: list[str] = []
        root = each
        while isinstance(root, ast.Attribute):
            attributes.insert(0, root.attr)
            root = root.value
            inner.add(root)
        if isinstance(root, ast.Name) and each not in inner:
            yield (root.id, *attributes)


def meaning_of(module: str) -> str:
    """A whole module without docstrings, comments and line breaks."""
    return _meaning(Definition(module, ""))


def modules_of(package: str) -> list[str]:
    """The modules of one of `PACKAGES`, and of the packages within it."""
    folder = PACKAGES[package]
    paths = (path.relative_to(folder).with_suffix("") for path in sorted(folder.rglob("*.py")))
    parts = ([part for part in path.parts if part != "__init__"] for path in paths)
    return [".".join([package, *each]) for each in parts]


def imported_by(module: str) -> set[str]:
    """The modules of the project that one imports itself, wherever in it, and their packages.

    Also those that it finds as parts of operators.
    """
    found: set[str] = set()
    for _, name in _imports(_tree(module), module):
        parts = name.split(".")
        prefixes = (".".join(parts[: index + 1]) for index in range(len(parts)))
        found |= {each for each in prefixes if path_of(each) is not None}
    return found | set(_searched(_tree(module)))


@functools.cache
def path_of(module: str) -> Path | None:
    """The file of a module; None if it is none of the project's."""
    first, *rest = module.split(".")
    if first not in PACKAGES:
        return None
    base = PACKAGES[first].joinpath(*rest)
    candidates = base / "__init__.py", base.with_name(f"{base.name}.py")
    return next((path for path in candidates if path.is_file()), None)


def file_of(module: str) -> Path:
    """The file of a module of the project."""
    path = path_of(module)
    assert path is not None
    return path


@functools.cache
def _tree(module: str) -> ast.Module:
    """The syntax tree without docstrings; it has neither comments nor line breaks."""
    tree = ast.parse(file_of(module).read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]
        if getattr(node, "type_params", None) == []:  # Python 3.11 has none
            del node.type_params  # type: ignore[attr-defined]
    return tree


@functools.cache
def _meaning(of: Definition) -> str:
    return "\n".join(ast.dump(node, **DUMP) for node in _nodes(of))


def _is_text(node: ast.stmt) -> bool:
    """Whether a statement is a string alone: a docstring, or one under a constant."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
