"""Our transports keep the contract, and a double that breaks one promise of it is told so."""

from __future__ import annotations

import gevent
import pytest
from gevent.lock import RLock

from muxws_green.errors import ConnectionClosed
from muxws_green.testing.contracts import check_transport
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
from tests.testing.contracts.doubles import (
    Breaks,
    assert_all_are_broken,
    assert_rejected,
    be_impatient,
    breaks,
    every_double,
)
from tests.transports.raw import PAIRS

DOUBLES: Breaks = {}

CAPACITY_BYTES = 100_000


@breaks(DOUBLES, suite.in_order, "'three'] was received")
class Reorders(MemoryTransport):
    def send(self, messages, binary):
        super().send(messages[::-1], binary)


@breaks(DOUBLES, suite.in_order, "was received")
class OneKind(MemoryTransport):
    def send(self, messages, binary):
        super().send(messages, True)


@breaks(DOUBLES, suite.both_ways, "were received")
class HearsItself(MemoryTransport):
    def send(self, messages, binary):
        super().send(messages, binary)
        for message in messages:
            self.inject(message if binary else message.decode())


@breaks(DOUBLES, suite.longest_message, "ConnectionClosed was raised")
class TakesLess(MemoryTransport):
    def __init__(self, outgoing, incoming, max_message_bytes):
        super().__init__(outgoing, incoming, max_message_bytes - 1)


@breaks(DOUBLES, suite.waits_for_a_message, "before there was one")
class Polls(MemoryTransport):
    def receive(self):
        return super().receive() if self.incoming._arrived else []


@breaks(DOUBLES, suite.full_duplex, "nothing had happened")
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


@breaks(DOUBLES, suite.counts_bytes, "received_bytes grew by 0")
class CountsNothingReceived(MemoryTransport):
    received_bytes = Uncounted(0)


@breaks(DOUBLES, suite.counts_bytes, "sent_bytes grew by 0")
class CountsNothingSent(MemoryTransport):
    sent_bytes = Uncounted(0)


@breaks(DOUBLES, suite.counts_what_waits, "sent_bytes is ")
class CountsWhatHasLeft(MemoryTransport):
    @property
    def sent_bytes(self):
        return sum(map(len, self.sent))

    @sent_bytes.setter
    def sent_bytes(self, value):
        pass


@breaks(DOUBLES, suite.counts_what_waits, "unacknowledged is 0 while")
class KnowsNoWait(MemoryTransport):
    def unacknowledged(self):
        return self.outgoing.travelling_bytes


@breaks(DOUBLES, suite.leaves_at_once, "was received")
class ReordersAtOnce(MemoryTransport):
    def send_at_once(self, messages, binary):
        super().send_at_once(messages[::-1], binary)


@breaks(DOUBLES, suite.leaves_at_once, "sent_bytes grew by")
class CountsNothingAtOnce(MemoryTransport):
    def send_at_once(self, messages, binary):
        super().send_at_once(messages, binary)
        self.sent_bytes = 0


@breaks(DOUBLES, suite.at_once_never_waits, "another greenlet has run")
class YieldsAtOnce(MemoryTransport):
    def send_at_once(self, messages, binary):
        gevent.sleep(0)
        super().send_at_once(messages, binary)


@breaks(DOUBLES, suite.at_once_never_waits, "was not woken")
class KeepsInSilence(MemoryTransport):
    def send_at_once(self, messages, binary):
        wake, self._wake = self._wake, lambda: None
        super().send_at_once(messages, binary)
        self._wake = wake


@breaks(DOUBLES, suite.at_once_never_waits, "unacknowledged is 0 while")
class KnowsNoRest(MemoryTransport):
    def unacknowledged(self):
        return 0 if self._kept else super().unacknowledged()


@breaks(DOUBLES, suite.at_once_never_waits, "nothing had happened")
class LosesTheRest(MemoryTransport):
    def _write_kept(self):
        self._kept.clear()


@breaks(DOUBLES, suite.at_once_never_waits, "in another order")
class WritesTheRestBackwards(MemoryTransport):
    def _write_kept(self):
        self._kept.reverse()
        super()._write_kept()


@breaks(DOUBLES, suite.nothing_at_once_behind_the_end, "after a close did not raise")
class SwallowsAtOnce(MemoryTransport):
    def send_at_once(self, messages, binary):
        if self.closed_with is None:
            super().send_at_once(messages, binary)


@breaks(DOUBLES, suite.nothing_at_once_behind_the_end, "after an abort did not raise")
class SwallowsAfterAbort(MemoryTransport):
    def send_at_once(self, messages, binary):
        if not self._aborted:
            super().send_at_once(messages, binary)


@breaks(DOUBLES, suite.close_behind_messages, "the other end saw 1001 ''")
class LosesTheReason(MemoryTransport):
    def close(self, code, reason):
        super().close(code, "")


@breaks(DOUBLES, suite.close_behind_messages, "on a later call")
class ForgetsTheEnd(MemoryTransport):
    def receive(self):
        try:
            return super().receive()
        except ConnectionClosed:
            self._end = (1006, "")
            raise


@breaks(DOUBLES, suite.clean_close, "clean: False")
class NeverClean(MemoryTransport):
    def receive(self):
        try:
            return super().receive()
        except ConnectionClosed as error:
            raise ConnectionClosed(code=error.code, reason=error.reason) from None


@breaks(DOUBLES, suite.answers_close, "was not woken")
class NoWake(MemoryTransport):
    def attach(self, wake):
        pass


@breaks(DOUBLES, suite.answers_close, "the answer had the code 1000")
class AnswersAlwaysTheSame(MemoryTransport):
    def send(self, messages, binary):
        if self._answer is not None and self._answer.code == 4000:
            self._answer = _CloseFrame(1000, "")
        super().send(messages, binary)


@breaks(DOUBLES, suite.reads_on_after_close, "ConnectionClosed was raised")
class DeafAfterClose(MemoryTransport):
    def receive(self):
        if self.closed_with == (1000, "") and self._end is None:
            raise ConnectionClosed
        return super().receive()


@breaks(DOUBLES, suite.one_close_frame, "a send after a close did not raise")
class SwallowsAfterClose(MemoryTransport):
    def send(self, messages, binary):
        super().send(messages if self.closed_with is None else [], binary)


@breaks(DOUBLES, suite.unsendable_codes, "close(0) did not raise ValueError")
class TakesAnyCode(MemoryTransport):
    def close(self, code, reason):
        if code in (0, 1005):
            return
        super().close(code, reason)


@breaks(DOUBLES, suite.unsendable_codes, "ConnectionClosed was raised")
class DiesOfACode(MemoryTransport):
    def close(self, code, reason):
        try:
            super().close(code, reason)
        except ValueError:
            self.drop()
            raise


@breaks(DOUBLES, suite.cuts_the_reason, "the other end saw 120 bytes")
class CutsTooMuch(MemoryTransport):
    def close(self, code, reason):
        super().close(code, reason[:60])


@breaks(DOUBLES, suite.abort_does_not_wait, "another greenlet has run")
class WaitsToAbort(MemoryTransport):
    def abort(self, code=None):
        gevent.sleep(0)
        super().abort(code)


@breaks(DOUBLES, suite.abort_wakes, "nothing had happened")
class LeavesThemWaiting(MemoryTransport):
    def abort(self, code=None):
        self.outgoing._put(_EndOfFile(), 0)


@breaks(DOUBLES, suite.abort_is_1006, "the other end saw 1000")
class LooksClean(MemoryTransport):
    def abort(self, code=None):
        super().abort(1000 if code is None else code)


@breaks(DOUBLES, suite.abort_is_1006, "ConnectionClosed was raised")
class LosesWhatWasSent(MemoryTransport):
    def abort(self, code=None):
        self.outgoing._arrived.clear()
        super().abort(code)


@breaks(DOUBLES, suite.abort_with_a_code, "the other end saw 1006")
class KeepsTheCode(MemoryTransport):
    def abort(self, code=None):
        super().abort()


@breaks(DOUBLES, suite.abort_answers, "the other end saw 1006")
class AnswersNothing(MemoryTransport):
    def abort(self, code=None):
        self._answer = None
        super().abort(code)


@breaks(DOUBLES, suite.disown_is_silent, "another greenlet has run")
class WaitsToDisown(MemoryTransport):
    def disown(self):
        gevent.sleep(0)
        super().disown()


@breaks(DOUBLES, suite.disown_is_silent, "a send afterwards did not raise")
class SendsForItsParent(MemoryTransport):
    disowned = False

    def disown(self):
        self.disowned = True
        super().disown()

    def send(self, messages, binary):
        if not self.disowned:
            super().send(messages, binary)


@breaks(DOUBLES, suite.disown_is_silent, "'?'] was received")
class SpeaksForItsParent(MemoryTransport):
    def disown(self):
        self.outgoing._arrived.clear()
        self.outgoing._put("?", 1)
        super().disown()


@breaks(DOUBLES, suite.disown_is_silent, "code 1000")
class ClosesForItsParent(MemoryTransport):
    def disown(self):
        self.abort(1000)


@breaks(DOUBLES, suite.disown_is_silent, "nothing had happened")
class ReadsForItsParent(MemoryTransport):
    def disown(self):
        self._aborted = True


@breaks(DOUBLES, suite.sending_to_nobody, "did not raise")
class SendsToNobody(MemoryTransport):
    def send(self, messages, binary):
        if not self.incoming.ended or self._aborted:
            super().send(messages, binary)


@breaks(DOUBLES, suite.never_continues, "a send after one")
class Continues(MemoryTransport):
    def send(self, messages, binary):
        try:
            super().send(messages, binary)
        finally:
            self._broken = False
            self.outgoing.capacity_bytes = None


@breaks(DOUBLES, suite.never_continues, "send raised ConnectionClosed")
class Translates(MemoryTransport):
    def send(self, messages, binary):
        try:
            super().send(messages, binary)
        except gevent.Timeout:
            raise ConnectionClosed from None


@breaks(DOUBLES, suite.too_long, "violated is not set")
class BlamesNobody(MemoryTransport):
    violated = Uncounted(False)


@breaks(DOUBLES, suite.too_long, "did not raise ConnectionClosed")
class TakesAnyLength(MemoryTransport):
    def __init__(self, outgoing, incoming, max_message_bytes):
        super().__init__(outgoing, incoming, max_message_bytes * 2)


@breaks(DOUBLES, suite.unacknowledged_is_total, "OSError was raised: closed")
class KnowsNothingAtTheEnd(MemoryTransport):
    def unacknowledged(self):
        if self._aborted:
            raise OSError("closed")
        return super().unacknowledged()


@breaks(DOUBLES, suite.unacknowledged_is_total, "it was [-1")
class CountsBelowZero(MemoryTransport):
    def unacknowledged(self):
        return super().unacknowledged() or -1


@breaks(DOUBLES, suite.waits_for_a_message, "once there was one")
class HandsOutNothing(MemoryTransport):
    def receive(self):
        super().receive()
        return []


@breaks(DOUBLES, suite.in_order, "receive returned no message")
class HandsOutNothingFirst(MemoryTransport):
    pending = None

    def receive(self):
        if self.pending is None:
            self.pending = super().receive()
            if len(self.pending) > 1:
                return []
        messages, self.pending = self.pending, None
        return messages


@breaks(DOUBLES, suite.full_duplex, "was raised")
class ForOneGreenlet(MemoryTransport):
    user = None

    def receive(self):
        self.user = gevent.getcurrent()
        try:
            return super().receive()
        finally:
            self.user = None

    def send(self, messages, binary):
        if len(messages) > 8 and self.user not in (None, gevent.getcurrent()):
            raise ConnectionClosed("in use")
        super().send(messages, binary)


@breaks(DOUBLES, suite.counts_what_waits, "though the remote is there")
class GivesUpBigBatches(MemoryTransport):
    def send(self, messages, binary):
        if len(messages) > 8:
            raise ConnectionClosed("too much")
        super().send(messages, binary)


@breaks(DOUBLES, suite.close_behind_messages, "was called clean")
class AlwaysClean(MemoryTransport):
    def receive(self):
        try:
            return super().receive()
        except ConnectionClosed as error:
            raise ConnectionClosed(code=error.code, reason=error.reason, was_clean=True) from None


@breaks(DOUBLES, suite.clean_close, "violated is set")
class BlamesEverybody(MemoryTransport):
    violated = Uncounted(True)


@breaks(DOUBLES, suite.answers_close, "woken before anything came")
class WakesAtOnce(MemoryTransport):
    def attach(self, wake):
        super().attach(wake)
        wake()


@breaks(DOUBLES, suite.reads_on_after_close, "was received")
class MixesUpAfterClose(MemoryTransport):
    def receive(self):
        messages = super().receive()
        return ["?"] if self.closed_with == (1000, "") else messages


@breaks(DOUBLES, suite.one_close_frame, "the other end saw 1002")
class ThinksAgain(MemoryTransport):
    def close(self, code, reason):
        if self.closed_with is not None:
            self.outgoing._arrived.pop()
            self.outgoing._put(_CloseFrame(code, reason), 0)
        super().close(code, reason)


@breaks(DOUBLES, suite.unsendable_codes, "was received afterwards")
class LosesTrackOfACode(MemoryTransport):
    lost = False

    def close(self, code, reason):
        try:
            super().close(code, reason)
        except ValueError:
            self.lost = True
            raise

    def send(self, messages, binary):
        super().send([b"?"] if self.lost else messages, binary)


@breaks(DOUBLES, suite.abort_wakes, "receive ended with OSError")
class WakesWithAnother(MemoryTransport):
    def receive(self):
        try:
            return super().receive()
        except ConnectionClosed:
            if self._aborted:
                raise OSError from None
            raise


@breaks(DOUBLES, suite.abort_wakes, "a send after an abort did not raise")
class SendsAfterAbort(MemoryTransport):
    def send(self, messages, binary):
        if not self._aborted:
            super().send(messages, binary)


@breaks(DOUBLES, suite.never_continues, "a close after a send")
class ClosesAfterwards(MemoryTransport):
    def close(self, code, reason):
        if not self._broken:
            super().close(code, reason)


@breaks(DOUBLES, suite.never_continues, "the other end saw ConnectionClosed")
class SaysGoodbyeAfterwards(MemoryTransport):
    def abort(self, code=None):
        self._broken = False
        super().abort(code)


@breaks(DOUBLES, suite.never_continues, "what was sent afterwards")
class WritesAndComplains(MemoryTransport):
    def send(self, messages, binary):
        if self._broken:
            self.outgoing._put(messages[0], 0)
        super().send(messages, binary)


@breaks(DOUBLES, suite.too_long, "receive raised 1002")
class CallsItAnotherFault(MemoryTransport):
    def receive(self):
        try:
            return super().receive()
        except ConnectionClosed as error:
            if error.code == 1009:
                raise ConnectionClosed(code=1002) from None
            raise


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
        return good, AnswersAlwaysTheSame(back, there, DEFAULT_MAX_MESSAGE_BYTES)

    complaint = "the answer had the code 1000"
    assert_rejected(suite.answers_close, complaint, lambda: check_transport(make_pair))
    assert_rejected(suite.answers_close, complaint, lambda: check_transport(lambda: make_pair()[::-1]))


@every_double(DOUBLES)
def test_a_broken_double_is_rejected(promise, double, complaint, monkeypatch):
    be_impatient(complaint, monkeypatch)

    def make_pair() -> tuple[MemoryTransport, MemoryTransport]:
        there, back = Line(CAPACITY_BYTES), Line(CAPACITY_BYTES)
        limit = DEFAULT_MAX_MESSAGE_BYTES
        return double(there, back, limit), double(back, there, limit)

    assert_rejected(promise, complaint, lambda: check_transport(make_pair))


def test_every_promise_has_a_double_that_breaks_it():
    assert_all_are_broken(suite.PROMISES, DOUBLES)
