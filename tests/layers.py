"""The arrows between the parts of the package, as data, and what finds imports that go against them.

An import counts wherever it stands, in a function too, but not below `if TYPE_CHECKING:`: that one never happens.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

PACKAGE = "muxws_green"

#: What the names in `muxws_green/__init__.py` stand for as a part of the package.
TOP = PACKAGE

#: From the bottom up: a part imports itself and lower rows. Parts of one row do not know each other.
ROWS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "interfaces", "settings"}),
    frozenset({"protocol"}),
    frozenset({"codecs", "websocket"}),
    frozenset({"runtime"}),
    frozenset({"transports"}),
    frozenset({"api"}),
    frozenset({TOP}),
    frozenset({"messaging", "testing", "echo"}),
    frozenset({"cli"}),
    frozenset({"__main__"}),
)

#: The lowest row is one vocabulary in several modules, which may use each other.
VOCABULARY = ROWS[0]

#: Parts that see less than what is below them: a layer above the public names uses those, like anybody's code.
ONLY = {"messaging": frozenset({"messaging", TOP, "api", "errors", "interfaces"})}

#: What has to do with the world outside, which a pure part leaves to its caller.
IMPURE = frozenset(
    {"asyncio", "gevent", "greenlet", "logging", "multiprocessing", "queue", "random", "sched", "secrets", "select"}
    | {"selectors", "signal", "socket", "socketserver", "ssl", "subprocess", "threading", "time"}
)

#: The pure parts. (`os` is allowed for `os.urandom`, and `os` alone.)
PURE = frozenset({"protocol", "websocket"})


class Import(NamedTuple):
    """One imported name, absolute; `line` is where it stands."""

    name: str
    line: int


def package_dir() -> Path:
    """Where the package under test is, found without importing it: what is broken can be looked at too."""
    spec = find_spec(PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def violations(package: Path) -> list[str]:
    """Every import of the package in this directory that goes against the rules, as `file:line: what is wrong`."""
    parts = {path.stem if path.is_file() else path.name for path in package.iterdir() if _is_code(path)}
    found = [f"{name}: not in the table of layers" for name in sorted(parts - {"__init__"} - frozenset().union(*ROWS))]
    for path in sorted(package.rglob("*.py")):
        relative = path.relative_to(package)
        importer = TOP if relative.name == "__init__.py" and len(relative.parts) == 1 else relative.parts[0]
        importer = importer.removesuffix(".py")
        for imported in imports(path, package):
            wrong = _judge(importer, imported.name, parts)
            if wrong:
                found.append(f"{relative}:{imported.line}: {wrong}")
    return found


def imports(path: Path, package: Path) -> list[Import]:
    """What the module at `path` imports. `from a import b` is `a.b`, since `b` may be a module."""
    inside = [package.name, *path.relative_to(package).parts[:-1]]
    found = []
    for node in _executed(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = inside[: len(inside) - node.level + 1] if node.level else []
            module = ".".join([*base, node.module] if node.module else base)
            found += [Import(f"{module}.{alias.name}", node.lineno) for alias in node.names]
    return found


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for other in child.orelse:
                yield from (other, *_executed(other))
        else:
            yield child
            yield from _executed(child)


def _judge(importer: str, name: str, parts: set[str]) -> str | None:
    root, _, rest = name.partition(".")
    if root != PACKAGE:
        if importer in PURE and root in IMPURE:
            return f"{importer} is pure and imports {root}"
        return None
    part = rest.partition(".")[0]
    imported = part if part in parts else TOP
    if imported == importer or {imported, importer} <= VOCABULARY:
        return None
    if importer in ONLY and imported not in ONLY[importer]:
        return f"{importer} imports {imported}, and may only import {', '.join(sorted(ONLY[importer]))}"
    if _row(imported) >= _row(importer):
        return f"{importer} imports {imported}, which is not below it"
    return None


def _row(part: str) -> int:
    return next((index for index, row in enumerate(ROWS) if part in row), len(ROWS))


def _is_code(path: Path) -> bool:
    return path.suffix == ".py" or (path / "__init__.py").is_file()
