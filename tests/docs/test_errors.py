"""docs/errors.md has every error, with the classes that it is derived from, and every reset code."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import muxws_green
from muxws_green import HandlerStopped, MuxwsError, ResetCode
from muxws_green.messaging import errors as of_named_calls
from muxws_green.protocol.connection import Violation
from tests.docs.pages import page, rows

TABLES = ("One stream failed", "The connection", "A rule was broken", "Dialling", "Accepting")


def below(cls: type[Exception]) -> Iterator[type[Exception]]:
    yield cls
    for derived in cls.__subclasses__():
        yield from below(derived)


def public_errors() -> set[type[Exception]]:
    """All but those on the page of named calls, and one that never leaves the library."""
    for module in pkgutil.walk_packages(muxws_green.__path__, "muxws_green."):
        if not module.name.startswith(("muxws_green.testing", "muxws_green.transports.hosts")):
            importlib.import_module(module.name)
    ours = {cls for cls in below(MuxwsError) if cls.__module__.startswith("muxws_green.")}
    return ours - {Violation, *of_named_calls.VERDICTS}


def test_every_error_is_there_once() -> None:
    told = [row[0].strip("`") for table in TABLES for row in rows(page("errors"), f"## {table}")]
    assert sorted(told) == sorted(cls.__name__ for cls in public_errors())


def test_what_each_is() -> None:
    told = {
        row[0].strip("`"): row[1].replace("`", "") for table in TABLES for row in rows(page("errors"), f"## {table}")
    }
    assert told == {cls.__name__: ", ".join(base.__name__ for base in cls.__bases__) for cls in public_errors()}


def test_each_says_when() -> None:
    for table in TABLES:
        for row in rows(page("errors"), f"## {table}"):
            assert len(row) == 5
            assert row[2], row[0]


def test_the_errors_of_named_calls_are_on_their_page() -> None:
    for cls in of_named_calls.VERDICTS:
        assert f"`{cls.__name__}`" in page("messaging")


def test_handler_stopped_is_there() -> None:
    names = [row[0].strip("`") for row in rows(page("errors"), "## Not of this tree")]
    assert HandlerStopped.__name__ in names


def test_every_reset_code_is_there() -> None:
    told = {row[0].strip("`"): int(row[1]) for row in rows(page("errors"), "## Reset codes")}
    assert told == {code.name: code.value for code in ResetCode}
