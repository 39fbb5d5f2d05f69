"""The line editor, at a terminal of the test's: what is shown before, while and after it runs, and how it leaves."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import gevent
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from muxws_green.cli.prompt import TerminalLines
from tests.serving import until

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(60)]


class Screen:
    """What a terminal takes; as long as it is held it stands still, as after Ctrl-S."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.text = ""
        self.waits = False
        self._goes_on = threading.Event()
        self._goes_on.set()

    def hold(self) -> None:
        self.waits = False
        self._goes_on.clear()

    def release(self) -> None:
        self._goes_on.set()

    def write(self, text: str) -> int:
        self.waits = not self._goes_on.is_set()
        assert self._goes_on.wait(20)
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return -1


class Terminal:
    """A person at a terminal, and the editor there."""

    def __init__(self, keys: PipeInput, screen: Screen) -> None:
        self.keys = keys
        self.screen = screen
        self.told: list[tuple[str, str]] = []
        self.lines = TerminalLines(self.told.append, None)

    def begin(self) -> None:
        """Ask, and wait for the prompt."""
        self.lines.ask()
        # The blank behind it is a movement of the cursor.
        until(lambda: ">" in self.screen.text)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    screen = Screen()
    output = Vt100_Output(screen, lambda: Size(rows=24, columns=80), term="dumb", enable_cpr=False)  # type: ignore[arg-type]
    with create_pipe_input() as keys, create_app_session(input=keys, output=output):
        terminal = Terminal(keys, screen)
        yield terminal
        screen.release()
        terminal.lines.close()


def test_lines_are_shown_before_it_runs_and_after(terminal: Terminal) -> None:
    terminal.lines.show("before")
    assert "before\r\n" in terminal.screen.text
    terminal.begin()
    terminal.lines.close()
    terminal.lines.show("after")
    assert terminal.screen.text.endswith("after\r\n")


def test_a_line_that_comes_while_it_begins_is_shown_above_the_prompt(terminal: Terminal) -> None:
    terminal.lines.ask()
    terminal.lines.show("meanwhile")
    until(lambda: "meanwhile\r\n" in terminal.screen.text)
    terminal.keys.send_text("1\r")
    until(lambda: terminal.told == [("line", "1")])


def test_whoever_shows_more_than_the_terminal_takes_waits_and_nothing_is_lost(terminal: Terminal) -> None:
    terminal.begin()
    terminal.screen.hold()
    shown: list[int] = []

    def show() -> None:
        for number in range(200):
            terminal.lines.show(f"{number:03}" + "x" * 1000)
            shown.append(number)

    showing = gevent.spawn(show)
    # The hub goes on.
    until(lambda: terminal.screen.waits and len(shown) > 60)
    assert not showing.ready()
    terminal.screen.release()
    showing.get(timeout=20)
    terminal.lines.close()
    places = [terminal.screen.text.index(f"{number:03}xxx") for number in range(200)]
    assert places == sorted(places)


def test_a_terminal_that_has_gone_is_an_end_like_any_other(terminal: Terminal) -> None:
    terminal.begin()
    terminal.keys.close()
    until(lambda: terminal.told == [("line", "/quit")])


def test_asked_to_leave_twice_it_leaves_once(terminal: Terminal) -> None:
    terminal.begin()
    terminal.screen.hold()
    terminal.lines.show("the last line")
    until(lambda: terminal.screen.waits)
    leaving = [gevent.spawn(terminal.lines.close) for _ in range(2)]
    gevent.idle()
    terminal.screen.release()
    gevent.joinall(leaving, timeout=20, raise_error=True)
    assert all(each.ready() for each in leaving)
    assert "the last line\r\n" in terminal.screen.text
    assert terminal.told == []


def test_one_that_does_not_leave_is_left_behind(terminal: Terminal) -> None:
    terminal.begin()
    terminal.screen.hold()
    terminal.keys.send_text("x")
    until(lambda: terminal.screen.waits)
    terminal.lines.close()
    assert terminal.screen.waits
    terminal.screen.release()
