"""docs/command-line.md tells what the program does: its options and defaults, its exit codes, its lines, its output."""

from __future__ import annotations

import re
from typing import Any

import click
import pytest

from muxws_green.cli.app import app
from muxws_green.cli.codes import MEANINGS, ExitCode
from muxws_green.cli.connecting import HELP
from tests.cli.programs import Program
from tests.docs.pages import page, rows

PAGE = page("command-line")
CODEC = "what `MUXWS_CODEC` says, or json"
#: Defaults that the page calls by a name.
NAMED = {
    ("connect", "--reconnect"): "at a terminal",
    ("connect", "--history"): "yes",
    (None, "--cacert"): "the system's",
}
SHARED = {row[0].strip("`"): row[1] for row in rows(PAGE, "## Reaching a server")}
CONSOLE = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def own(command: click.Command) -> dict[str, str]:
    """Option -> default, as the page tells them of one command."""
    text = PAGE[PAGE.index(f"\n## {command.name}\n") :]
    section = text[: text.find("\n## ", 1)] if "\n## " in text[1:] else text
    found = re.findall(r"^\| `(--[\w-]+)` \| ([^|]*) \| ([^|]+) \|$", section, re.MULTILINE)
    assert all(meaning for _, _, meaning in found)
    return {option: default for option, default, _ in found}


def default(command: click.Command, option: click.Option) -> str:
    name = option.opts[0]
    for key in ((command.name, name), (None, name)):
        if key in NAMED:
            return NAMED[key]
    if name == "--codec":
        return CODEC
    arguments = ["ws://h/", "1"][: sum(isinstance(each, click.Argument) for each in command.params)]
    value: Any = command.make_context("muxws-green", arguments).params[option.name or ""]
    if option.is_flag:
        return "yes" if value is True else "no"
    return "none" if value is None or value == () else str(value)


@pytest.mark.parametrize("command", app.commands.values(), ids=lambda command: command.name)
def test_options(command: click.Command) -> None:
    options = {each.opts[0]: each for each in command.params if isinstance(each, click.Option)}
    have = {name: default(command, option) for name, option in options.items()}
    assert have.pop("--json") == "no"
    for each in options.values():
        assert each.help
    shared = {"--insecure", "--cacert", "--timeout"} if command.name == "tap" else SHARED.keys()
    if command.name != "echo":
        assert {name: have.pop(name) for name in shared} == {name: SHARED[name] for name in shared}
    assert own(command) == have


def test_commands() -> None:
    listed = re.findall(r"^\| \[`(\w+)`\]\(#\1\) \|", PAGE, re.MULTILINE)
    assert listed == list(app.commands)


def test_exit_codes() -> None:
    assert rows(PAGE, "### Exit codes") == [[str(int(code)), code.name, meaning] for code, meaning in MEANINGS.items()]
    assert len(MEANINGS) == len(ExitCode)


def test_lines_of_connect() -> None:
    table = [row[0].strip("`") for row in rows(PAGE, "## connect")]
    assert table == [re.split(r"  +|(?<=\S) (?=tell)", line)[0] for line in HELP.splitlines()]


def same(output: str) -> str:
    """Without what no two runs share."""
    return re.sub(r"\d+\.\d+(?= ms|/)", "0", re.sub(r"127\.0\.0\.1:\d+", "PLACE", output))


@pytest.mark.slow
def test_examples() -> None:
    (block,) = CONSOLE
    with Program("echo", "--port", "0") as server:
        port = server.expect(r":(\d+)/")[1]
        told = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
        assert len(told) == 10
        for command, output in zip(told[::2], told[1::2], strict=True):
            shell = command.replace("8000", port).replace("muxws-green", "$MUXWS")
            with Program(shell=shell) as program:
                assert program.wait() == 0
            printed = "".join(
                line for line in program.out.splitlines(keepends=True) if not line.startswith("connected")
            )
            assert same(printed) == same(output)
