"""Our transports keep the contract, and a double that breaks one promise of it is told so."""

from __future__ import annotations

import gevent
import pytest
from gevent.lock import RLock

from muxws_green.errors import ConnectionClosed
from muxws_green.testing.contracts import check_transport, promises
from muxws_green.testing.contracts import transport as suite
from muxws_green.transports.memory import (
    DEFAULT_MAX_MESSAGE_BYTES,
    Line,
    MemoryTransport,
    _CloseFrame,
    _EndOfFile,
    memory_pair,
)
from muxws_green.transports.socket import SocketTransport
from tests.testing.contracts.doubles import Breaks, assert_all_are_broken, assert_rejected, breaks, every_double
from tests.transports.raw import PAIRS

DOUBLES: Breaks = {}

CAPACITY_BYTES = 100_000


@breaks(DOUBLES, suite.in_order)
class Reorders(MemoryTransport):
    def send(self, messages, binary):
        super().send(messages[::-1], binary)


@breaks(DOUBLES, suite.in_order)
class OneKind(MemoryTransport):
    def send(self, messages, binary):
        super().send(messages, True)


@breaks(DOUBLES, suite.both_ways)
class HearsItself(MemoryTransport):
    def send(self, messages, binary):
        super().send(messages, binary)
        for message in messages:
            self.inject(message if binary else message.decode())


@breaks(DOUBLES, suite.longest_message)
class TakesLess(MemoryTransport):
    def __init__(self, outgoing, incoming, max_message_bytes):
        super().__init__(outgoing, incoming, max_message_bytes - 1)


@breaks(DOUBLES, suite.waits_for_a_message)
class Polls(MemoryTransport):
    def receive(self):
        return super().receive() if self.incoming._arrived else []


@breaks(DOUBLES, suite.full_duplex)
class OneAtATime(MemoryTransport):
    def __init__(self, outgoing, incoming, max_message_bytes):
        super().__init__(outgoing, incoming, max_message_bytes)
        self.lock = RLock()

    def receive(self):
        with self.lock:
            return super().receive()

    def send(self, messages, binary):
        with self.lock:
            super().send(messages, binary)


class Uncounted:
    """An attribute that keeps its first value."""

    def __init__(self, value):
        self.value = value

    def __get__(self, instance, owner=None):
        return self.value

    def __set__(self, instance, value):
        pass


@breaks(DOUBLES, suite.counts_bytes)
class CountsNothingReceived(MemoryTransport):
    received_bytes = Uncounted(0)


@breaks(DOUBLES, suite.counts_bytes)
class CountsNothingSent(MemoryTransport):
    sent_bytes = Uncounted(0)


@breaks(DOUBLES, suite.counts_what_waits)
class CountsWhatHasLeft(MemoryTransport):
    @property
    def sent_bytes(self):
        return sum(map(len, self.sent))

    @sent_bytes.setter
    def sent_bytes(self, value):
        pass


@breaks(DOUBLES, suite.counts_what_waits)
class KnowsNoWait(MemoryTransport):
    def unacknowledged(self):
        return self.outgoing.travelling_bytes


@breaks(DOUBLES, suite.close_behind_messages)
class LosesTheReason(MemoryTransport):
    def close(self, code, reason):
        super().close(code, "")


@breaks(DOUBLES, suite.close_behind_messages)
class ForgetsTheEnd(MemoryTransport):
    def receive(self):
        try:
            return super().receive()
        finally:
            self._end = self._end and (1006, "")


@breaks(DOUBLES, suite.clean_close)
class NeverClean(MemoryTransport):
    def receive(self):
        try:
            return super().receive()
        except ConnectionClosed as error:
            raise ConnectionClosed(code=error.code, reason=error.reason) from None


@breaks(DOUBLES, suite.answers_close)
class NoWake(MemoryTransport):
    def attach(self, wake):
        pass


@breaks(DOUBLES, suite.answers_close)
class AnswersAlwaysTheSame(MemoryTransport):
    def send(self, messages, binary):
        if self._answer is not None and self._answer.code == 4000:
            self._answer = _CloseFrame(1000, "")
        super().send(messages, binary)


@breaks(DOUBLES, suite.reads_on_after_close)
class DeafAfterClose(MemoryTransport):
    def receive(self):
        if self.closed_with == (1000, "") and self._end is None:
            raise ConnectionClosed
        return super().receive()


@breaks(DOUBLES, suite.one_close_frame)
class SwallowsAfterClose(MemoryTransport):
    def send(self, messages, binary):
        super().send(messages if self.closed_with is None else [], binary)


@breaks(DOUBLES, suite.unsendable_codes)
class TakesAnyCode(MemoryTransport):
    def close(self, code, reason):
        if code in (0, 1005):
            return
        super().close(code, reason)


@breaks(DOUBLES, suite.unsendable_codes)
class DiesOfACode(MemoryTransport):
    def close(self, code, reason):
        try:
            super().close(code, reason)
        except ValueError:
            self.drop()
            raise


@breaks(DOUBLES, suite.cuts_the_reason)
class CutsTooMuch(MemoryTransport):
    def close(self, code, reason):
        super().close(code, reason[:60])


@breaks(DOUBLES, suite.abort_does_not_wait)
class WaitsToAbort(MemoryTransport):
    def abort(self, code=None):
        gevent.sleep(0)
        super().abort(code)


@breaks(DOUBLES, suite.abort_wakes)
class LeavesThemWaiting(MemoryTransport):
    def abort(self, code=None):
        self.outgoing._put(_EndOfFile(), 0)


@breaks(DOUBLES, suite.abort_is_1006)
class LooksClean(MemoryTransport):
    def abort(self, code=None):
        super().abort(1000 if code is None else code)


@breaks(DOUBLES, suite.abort_is_1006)
class LosesWhatWasSent(MemoryTransport):
    def abort(self, code=None):
        self.outgoing._arrived.clear()
        super().abort(code)


@breaks(DOUBLES, suite.abort_with_a_code)
class KeepsTheCode(MemoryTransport):
    def abort(self, code=None):
        super().abort()


@breaks(DOUBLES, suite.abort_answers)
class AnswersNothing(MemoryTransport):
    def abort(self, code=None):
        self._answer = None
        super().abort(code)


@breaks(DOUBLES, suite.sending_to_nobody)
class SendsToNobody(MemoryTransport):
    def send(self, messages, binary):
        if not self.incoming.ended or self._aborted:
            super().send(messages, binary)


@breaks(DOUBLES, suite.never_continues)
class Continues(MemoryTransport):
    def send(self, messages, binary):
        try:
            super().send(messages, binary)
        finally:
            self._broken = False
            self.outgoing.capacity_bytes = None


@breaks(DOUBLES, suite.never_continues)
class Translates(MemoryTransport):
    def send(self, messages, binary):
        try:
            super().send(messages, binary)
        except gevent.Timeout:
            raise ConnectionClosed from None


@breaks(DOUBLES, suite.too_long)
class BlamesNobody(MemoryTransport):
    violated = Uncounted(False)


@breaks(DOUBLES, suite.too_long)
class TakesAnyLength(MemoryTransport):
    def __init__(self, outgoing, incoming, max_message_bytes):
        super().__init__(outgoing, incoming, max_message_bytes * 2)


@breaks(DOUBLES, suite.unacknowledged_is_total)
class KnowsNothingAtTheEnd(MemoryTransport):
    def unacknowledged(self):
        if self._aborted:
            raise OSError("closed")
        return super().unacknowledged()


@breaks(DOUBLES, suite.unacknowledged_is_total)
class CountsBelowZero(MemoryTransport):
    def unacknowledged(self):
        return super().unacknowledged() or -1


def test_the_memory_transport_keeps_it():
    check_transport(lambda: memory_pair(capacity_bytes=CAPACITY_BYTES))


@pytest.mark.leaks
@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("max_message_bytes", [131_072, 40_000])
def test_the_socket_transport_keeps_it(kind, max_message_bytes):
    def make_pair() -> tuple[SocketTransport, SocketTransport]:
        client, server = (
            SocketTransport(sock, client=client, max_message_bytes=max_message_bytes)
            for sock, client in zip(PAIRS[kind](), (True, False), strict=True)
        )
        return client, server

    check_transport(make_pair, max_message_bytes=max_message_bytes)


def test_one_that_never_waits_is_told_so():
    with pytest.raises(AssertionError, match="send never waited"):
        check_transport(memory_pair)


def test_both_ends_are_tried():
    def make_pair() -> tuple[MemoryTransport, MemoryTransport]:
        there, back = Line(CAPACITY_BYTES), Line(CAPACITY_BYTES)
        good = MemoryTransport(there, back, DEFAULT_MAX_MESSAGE_BYTES)
        return good, NoWake(back, there, DEFAULT_MAX_MESSAGE_BYTES)

    assert_rejected(suite.answers_close, lambda: check_transport(make_pair))
    assert_rejected(suite.answers_close, lambda: check_transport(lambda: make_pair()[::-1]))


@every_double(DOUBLES)
def test_a_broken_double_is_rejected(promise, double, monkeypatch):
    monkeypatch.setattr(promises, "SECONDS", 0.5)

    def make_pair() -> tuple[MemoryTransport, MemoryTransport]:
        there, back = Line(CAPACITY_BYTES), Line(CAPACITY_BYTES)
        limit = DEFAULT_MAX_MESSAGE_BYTES
        return double(there, back, limit), double(back, there, limit)

    assert_rejected(promise, lambda: check_transport(make_pair))


def test_every_promise_has_a_double_that_breaks_it():
    assert_all_are_broken(suite.PROMISES, DOUBLES)
