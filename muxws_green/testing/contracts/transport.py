"""What every `ITransport` promises, tried on both ends of real pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import gevent

from muxws_green.errors import ConnectionClosed
from muxws_green.interfaces import ITransport
from muxws_green.testing.clock import settle
from muxws_green.testing.contracts.promises import Task, expect, keep, raised

#: At how many bytes under way `send` has to wait for the remote to read, at the latest.
CAPACITY_BYTES: Final = 67_108_864

_MESSAGE = bytes(32_768)
#: What a test that fills a transport writes at once.
_BATCH = [_MESSAGE] * 32
_BATCH_BYTES = len(_MESSAGE) * len(_BATCH)

_REASON_BYTES = 123
_UNSENDABLE_CODES = (0, 999, 1005, 1006, 1015, 5000)


def check_transport(
    make_pair: Callable[[], tuple[ITransport, ITransport]], *, max_message_bytes: int = 131_072
) -> None:
    """Check that a transport keeps the contract of `ITransport`, at both ends.

    Args:
        make_pair: Makes two ends of a new connection to which nobody is attached. It has to hold less than 64 MiB that
            the other end does not read.
        max_message_bytes: The longest message that they were told to accept.

    Raises:
        AssertionError: It breaks a promise; the message says which, and how.
    """
    for swapped in (False, True):
        keep(PROMISES, partial(_ends, make_pair, swapped, max_message_bytes))


class Ends:
    """Two ends of one connection, attached."""

    def __init__(self, near: ITransport, far: ITransport, max_message_bytes: int) -> None:
        self.near = near
        self.far = far
        self.max_message_bytes = max_message_bytes
        #: How often either end has asked for its writer.
        self.near_wakes = self.far_wakes = 0
        near.attach(self._wake_near)
        far.attach(self._wake_far)

    def _wake_near(self) -> None:
        self.near_wakes += 1

    def _wake_far(self) -> None:
        self.far_wakes += 1

    def fill(self) -> tuple[Task, int]:
        """Send from the near end until it has to wait; the task that waits, and how much it has been given."""
        for count in range(1, CAPACITY_BYTES // _BATCH_BYTES + 1):
            task = Task(self.near.send, _BATCH, True)
            settle()
            if not task.over:
                return task, count * _BATCH_BYTES
            expect(task.error is None, f"send raised {task.error!r} though the remote is there")
        raise AssertionError(f"send never waited, though the remote has not read {CAPACITY_BYTES} bytes")


@contextmanager
def _ends(
    make_pair: Callable[[], tuple[ITransport, ITransport]], swapped: bool, max_message_bytes: int
) -> Iterator[Ends]:
    pair = make_pair()
    near, far = reversed(pair) if swapped else pair
    try:
        yield Ends(near, far, max_message_bytes)
    finally:
        near.abort()
        far.abort()


def receive(transport: ITransport, count: int) -> list[str | bytes]:
    """So many messages."""
    messages: list[str | bytes] = []
    while len(messages) < count:
        found = transport.receive()
        expect(len(found) > 0, "receive returned no message")
        messages += found
    return messages


def the_end(transport: ITransport) -> ConnectionClosed:
    """What `receive` raises, and that it raises the same again; there is nothing more to be received."""
    first = raised(ConnectionClosed, transport.receive, "receive at the end of the connection")
    again = raised(ConnectionClosed, transport.receive, "a later receive")
    assert isinstance(first, ConnectionClosed)
    assert isinstance(again, ConnectionClosed)
    expect(
        (first.code, first.reason) == (again.code, again.reason),
        f"receive raised {first.code} {first.reason!r} at first, and {again.code} {again.reason!r} on a later call",
    )
    return first


def in_order(ends: Ends) -> None:
    """Messages arrive whole and in order, text as str and binary as bytes."""
    ends.near.send(["é".encode(), b"two", b""], False)
    ends.near.send([b"\xff\x00", b""], True)
    ends.near.send([b"three"], False)
    got = receive(ends.far, 6)
    expect(got == ["é", "two", "", b"\xff\x00", b"", "three"], f"{got!r} was received")


def both_ways(ends: Ends) -> None:
    """Both ends send, and neither hears itself."""
    ends.near.send([b"there"], False)
    ends.far.send([b"back"], False)
    there, back = receive(ends.far, 1), receive(ends.near, 1)
    expect((there, back) == (["there"], ["back"]), f"{there!r} and {back!r} were received")


def longest_message(ends: Ends) -> None:
    """A message of the greatest length arrives."""
    message = bytes(range(256)) * (ends.max_message_bytes // 256) + bytes(ends.max_message_bytes % 256)
    sending = Task(ends.near.send, [message], True)
    expect(receive(ends.far, 1) == [message], "another message was received")
    sending.join()


def waits_for_a_message(ends: Ends) -> None:
    """Receive waits until there is a message."""
    receiving = Task(ends.far.receive)
    settle()
    expect(not receiving.over, f"it returned {receiving.value!r} or raised {receiving.error!r} before there was one")
    ends.near.send([b"now"], False)
    receiving.join()
    got, error = receiving.value, receiving.error
    expect(error is None and len(got) == 1, f"it returned {got!r} or raised {error!r} once there was one")


def full_duplex(ends: Ends) -> None:
    """Neither of receiving and sending waits for the other."""
    rounds = 8
    tasks = [Task(_send_batches, end, rounds) for end in (ends.near, ends.far)]
    tasks += [Task(receive, end, rounds * len(_BATCH)) for end in (ends.near, ends.far)]
    for task in tasks:
        task.join()
        expect(task.error is None, f"{task.error!r} was raised")


def _send_batches(transport: ITransport, count: int) -> None:
    for _ in range(count):
        transport.send(_BATCH, True)


def counts_bytes(ends: Ends) -> None:
    """received_bytes and sent_bytes grow by no less than the messages."""
    before = ends.near.sent_bytes, ends.far.received_bytes
    ends.near.send([_MESSAGE], True)
    receive(ends.far, 1)
    sent, received = ends.near.sent_bytes - before[0], ends.far.received_bytes - before[1]
    size = len(_MESSAGE)
    expect(sent >= size, f"sent_bytes grew by {sent} for a message of {size}")
    expect(received >= size, f"received_bytes grew by {received} for a message of {size}")


def counts_what_waits(ends: Ends) -> None:
    """What a send that waits holds counts as sent, and as not acknowledged where that is known."""
    _, given = ends.fill()
    expect(ends.near.sent_bytes >= given, f"sent_bytes is {ends.near.sent_bytes} of {given}")
    unacknowledged = ends.near.unacknowledged()
    expect(unacknowledged is None or unacknowledged > 0, f"unacknowledged is {unacknowledged!r} while a send waits")


def leaves_at_once(ends: Ends) -> None:
    """What is sent at once counts, and arrives in order with what is sent otherwise."""
    before = ends.near.sent_bytes
    ends.near.send([b"one"], False)
    ends.near.send_at_once(["é".encode(), b"two"], False)
    ends.near.send_at_once([b"\xff\x00"], True)
    ends.near.send([b"three"], False)
    got = receive(ends.far, 5)
    expect(got == ["one", "é", "two", b"\xff\x00", "three"], f"{got!r} was received")
    expect(ends.near.sent_bytes - before >= 15, f"sent_bytes grew by {ends.near.sent_bytes - before} for 15 bytes")


def at_once_never_waits(ends: Ends) -> None:
    """Sending at once never waits: what there is no room for the next send writes, for which the writer is woken."""
    others: list[str] = []
    gevent.spawn(others.append, "another greenlet")
    count = 0
    while not ends.near_wakes and count < CAPACITY_BYTES // len(_MESSAGE):
        ends.near.send_at_once([_numbered(count), _numbered(count + 1)], True)
        expect(not others, "another greenlet has run meanwhile")
        count += 2
    expect(ends.near_wakes > 0, "the writer was not woken, though the remote has not read")
    unacknowledged = ends.near.unacknowledged()
    expect(unacknowledged is None or unacknowledged > 0, f"unacknowledged is {unacknowledged!r} while a rest waits")
    ends.near.send_at_once([_numbered(count)], True)
    writing = Task(ends.near.send, [], True)
    got = receive(ends.far, count + 1)
    writing.join()
    expect(
        got == [_numbered(number) for number in range(count + 1)], "other messages were received, or in another order"
    )


def _numbered(number: int) -> bytes:
    return number.to_bytes(4, "big") + _MESSAGE[4:]


def nothing_at_once_behind_the_end(ends: Ends) -> None:
    """Sending at once raises ConnectionClosed behind a close frame, and after an abort."""
    for end, act, what in (
        (ends.near, partial(ends.near.close, 1000, ""), "a close"),
        (ends.far, ends.far.abort, "an abort"),
    ):
        act()
        raised(ConnectionClosed, partial(end.send_at_once, [b"x"], False), f"sending at once after {what}")


def close_behind_messages(ends: Ends) -> None:
    """A close frame arrives behind everything sent before it, with its code and reason."""
    ends.near.send([b"last"], False)
    ends.near.close(1001, "going away")
    expect(receive(ends.far, 1) == ["last"], "the message before it did not arrive")
    end = the_end(ends.far)
    expect((end.code, end.reason) == (1001, "going away"), f"the other end saw {end.code} {end.reason!r}")
    expect(not end.was_clean, "a close with 1001 was called clean")


def clean_close(ends: Ends) -> None:
    """A close with 1000 is clean at both ends, and nobody has broken a rule."""
    ends.near.close(1000, "")
    far = the_end(ends.far)
    ends.far.send([], False)
    near = the_end(ends.near)
    for name, end in (("the other", far), ("this", near)):
        expect(end.code == 1000 and end.was_clean, f"{name} end saw {end.code}, clean: {end.was_clean}")
    expect(not ends.near.violated and not ends.far.violated, "violated is set")


def answers_close(ends: Ends) -> None:
    """The remote's close frame wakes the writer, and its next send answers with the same code."""
    ends.near.close(4000, "")
    expect(ends.far_wakes == 0, "the writer was woken before anything came")
    the_end(ends.far)
    expect(ends.far_wakes > 0, "the writer was not woken")
    ends.far.send([], True)
    end = the_end(ends.near)
    expect(end.code == 4000, f"the answer had the code {end.code}")


def reads_on_after_close(ends: Ends) -> None:
    """Reading goes on after a close."""
    ends.near.close(1000, "")
    ends.far.send([b"on its way"], False)
    got = receive(ends.near, 1)
    expect(got == ["on its way"], f"{got!r} was received")


def one_close_frame(ends: Ends) -> None:
    """The first close counts, later ones do nothing, and no message follows."""
    ends.near.close(1001, "first")
    ends.near.close(1002, "second")
    raised(ConnectionClosed, lambda: ends.near.send([b"behind it"], False), "a send after a close")
    end = the_end(ends.far)
    expect((end.code, end.reason) == (1001, "first"), f"the other end saw {end.code} {end.reason!r}")


def unsendable_codes(ends: Ends) -> None:
    """A close code that may not be on the wire is a ValueError, and changes nothing."""
    for code in _UNSENDABLE_CODES:
        raised(ValueError, partial(ends.near.close, code, ""), f"close({code})")
    ends.near.send([b"still here"], False)
    got = receive(ends.far, 1)
    expect(got == ["still here"], f"{got!r} was received afterwards")


def cuts_the_reason(ends: Ends) -> None:
    """A reason is cut to 123 bytes of UTF-8, between two characters."""
    ends.near.close(1000, "é" * 100)
    reason = the_end(ends.far).reason
    expect(reason == "é" * (_REASON_BYTES // 2), f"the other end saw {len(reason.encode())} bytes: {reason!r}")


def abort_does_not_wait(ends: Ends) -> None:
    """Abort lets nobody else run, however full the line is, and does nothing the second time."""
    ends.fill()
    others: list[str] = []
    gevent.spawn(others.append, "another greenlet")
    ends.near.abort(1000)
    ends.near.abort()
    expect(not others, "another greenlet has run meanwhile")


def abort_wakes(ends: Ends) -> None:
    """Abort ends the receive and the send that wait at its end, with ConnectionClosed."""
    receiving = Task(ends.near.receive)
    sending, _ = ends.fill()
    ends.near.abort()
    for name, task in (("receive", receiving), ("send", sending)):
        task.join()
        expect(isinstance(task.error, ConnectionClosed), f"{name} ended with {task.error!r}")
    raised(ConnectionClosed, lambda: ends.near.send([b"x"], False), "a send after an abort")
    the_end(ends.near)


def abort_is_1006(ends: Ends) -> None:
    """After an abort without a code the other end reads what was sent, and then 1006."""
    ends.near.send([b"before"], False)
    ends.near.abort()
    expect(receive(ends.far, 1) == ["before"], "what was sent before was lost")
    end = the_end(ends.far)
    expect(end.code == 1006 and not end.was_clean, f"the other end saw {end.code}, clean: {end.was_clean}")


def abort_with_a_code(ends: Ends) -> None:
    """An abort with a code shows it to the other end where nothing stands in the way."""
    ends.near.abort(1000)
    end = the_end(ends.far)
    expect(end.code == 1000, f"the other end saw {end.code}")


def abort_answers(ends: Ends) -> None:
    """An abort answers the remote's close frame where that is still to be done."""
    ends.far.close(4001, "")
    the_end(ends.near)
    ends.near.abort()
    end = the_end(ends.far)
    expect(end.code == 4001, f"the other end saw {end.code}")


def disown_is_silent(ends: Ends) -> None:
    """After disown this end is over, and the other end has not been told a word."""
    ends.near.send([b"before"], False)
    others: list[str] = []
    gevent.spawn(others.append, "another greenlet")
    ends.near.disown()
    expect(not others, "another greenlet has run meanwhile")
    raised(ConnectionClosed, lambda: ends.near.send([b"x"], False), "a send afterwards")
    the_end(ends.near)
    ends.near.abort(1000)
    got = receive(ends.far, 1)
    expect(got == ["before"], f"{got!r} was received")
    # With the last copy of its descriptor a socket ends, though nobody has said so.
    receiving = Task(ends.far.receive)
    settle()
    end = receiving.error
    silent = not receiving.over or (isinstance(end, ConnectionClosed) and end.code == 1006)
    expect(silent, f"the other end received {receiving.value!r} or saw {end!r}")


def sending_to_nobody(ends: Ends) -> None:
    """Sending to a remote that is gone raises ConnectionClosed, the first time or soon after."""
    ends.far.abort()

    def send() -> None:
        for _ in range(100):
            ends.near.send([_MESSAGE], True)
            settle()

    raised(ConnectionClosed, send, "sending again and again")


def never_continues(ends: Ends) -> None:
    """A send that is interrupted lets the interruption out, and nothing is written after it."""
    sending, _ = ends.fill()
    interruption = gevent.Timeout()
    sending.throw(interruption)
    expect(sending.error is interruption, f"send raised {sending.error!r} when {interruption!r} was thrown in")
    raised(ConnectionClosed, lambda: ends.near.send([b"behind it"], True), "a send after one that was cut short")
    raised(ConnectionClosed, lambda: ends.near.close(1000, ""), "a close after a send that was cut short")
    ends.near.abort(1000)
    got: set[str | bytes] = set()
    reading = Task(_read_into, ends.far, got)
    reading.join()
    end = reading.error
    expect(isinstance(end, ConnectionClosed) and end.code == 1006, f"the other end saw {end!r}")
    expect(got <= {_MESSAGE}, "the other end received what was sent afterwards")


def _read_into(transport: ITransport, got: set[str | bytes]) -> None:
    while True:
        got.update(transport.receive())


def too_long(ends: Ends) -> None:
    """A message over the limit ends the connection with 1009, and violated tells so."""
    sending = Task(ends.near.send, [bytes(ends.max_message_bytes + 1)], True)
    end = the_end(ends.far)
    expect(end.code == 1009, f"receive raised {end.code}")
    expect(ends.far.violated, "violated is not set")
    ends.far.abort()
    sending.join()


def unacknowledged_is_total(ends: Ends) -> None:
    """Unacknowledged is a count or None at any time, also when all is over."""
    found = [ends.near.unacknowledged()]
    ends.near.send([_MESSAGE], True)
    found.append(ends.near.unacknowledged())
    receive(ends.far, 1)
    ends.near.abort()
    found.append(ends.near.unacknowledged())
    good = all(count is None or (type(count) is int and count >= 0) for count in found)
    expect(good, f"it was {found!r} before, while and after sending")


#: Each is tried on a connection of its own.
PROMISES: Final = (
    waits_for_a_message,
    in_order,
    both_ways,
    longest_message,
    counts_bytes,
    counts_what_waits,
    full_duplex,
    close_behind_messages,
    reads_on_after_close,
    clean_close,
    answers_close,
    one_close_frame,
    unsendable_codes,
    cuts_the_reason,
    abort_does_not_wait,
    abort_wakes,
    abort_is_1006,
    abort_with_a_code,
    abort_answers,
    disown_is_silent,
    sending_to_nobody,
    never_continues,
    too_long,
    unacknowledged_is_total,
    leaves_at_once,
    at_once_never_waits,
    nothing_at_once_behind_the_end,
)
