"""The two loops of a connection: the reader's and the writer's.

The reader judges what arrives and never writes. The writer is the only greenlet that waits in a write; a single small
frame may leave in its sender's turn while the writer rests. Neither outlives the other, nor the connection: whatever
ends one of them ends in `Link.terminate`.
"""

from __future__ import annotations

import logging
from logging import DEBUG
from typing import TYPE_CHECKING

import gevent

from muxws_green.errors import ConnectionClosed
from muxws_green.protocol.connection import Violation
from muxws_green.protocol.lanes import BATCH_BYTES
from muxws_green.runtime.hooks import logs_frames

if TYPE_CHECKING:
    from muxws_green.runtime.link import Link
    from muxws_green.runtime.waiting import Doorbell

logger = logging.getLogger("muxws.peer")


def read(link: Link) -> None:
    """Take what arrives and act upon it, until there is nothing more to be read.

    Raises:
        BaseException: Whatever was thrown into this greenlet; the connection has been ended.
    """
    try:
        _read_on(link)
    except ConnectionClosed as closed:
        _read_ended(link, closed)
    except BaseException as error:
        # Whoever killed the reader, or whatever fault of ours this is: the connection must not outlive it in silence.
        link.crashed("reader", error, tell=not link.serves_caller)
        if link.serves_caller or not isinstance(error, Exception):
            # What is thrown into the caller of `serve` comes out of it.
            raise


def _read_on(link: Link) -> None:
    transport, core = link.transport, link.core
    intake, heartbeat = link.intake, link.heartbeat
    while True:
        messages = transport.receive()
        if link.cause is not None:
            return
        if heartbeat is not None:
            heartbeat.received()
        if link.failing:
            continue
        link.frames_received += len(messages)
        core.observer = link.show_received if link.hooks.observers or logs_frames(DEBUG) else None
        try:
            for message in messages:
                core.receive(message)
                if link.failing:
                    break
        except Violation as violation:
            _violated(link, violation)
            continue
        # Nothing of it is kept while the remote is silent.
        del messages
        if intake.held_bytes > intake.soft_bytes:
            intake.pause()
            if heartbeat is not None:
                heartbeat.resumed()


def _read_ended(link: Link, closed: ConnectionClosed) -> None:
    """The transport has nothing more: the remote closed, the socket died, or a WebSocket rule was broken."""
    if closed.code in (1002, 1007, 1009) and link.transport.violated:
        link.fail(closed, closed.code, closed.reason)
    else:
        link.terminate(closed)


def _violated(link: Link, violation: Violation) -> None:
    code = violation.close_code
    link.fail(ConnectionClosed(violation.reason, code=code, reason=violation.reason), code, violation.reason)
    logger.warning("muxws conn=%s connection-level protocol error: %s", link.id, violation.reason)


def write(link: Link, work: Doorbell) -> None:
    """Write what is queued, and rest in between, until the connection is over.

    Args:
        link: The connection.
        work: Rung when something has been queued.

    Raises:
        BaseException: Whatever was thrown into this greenlet; the connection has been ended.
    """
    try:
        _write_on(link, work)
    except ConnectionClosed as closed:
        link.terminate(closed)
    except BaseException as error:
        # As for the reader: one of two loops must not end alone.
        link.crashed("writer", error)
        if not isinstance(error, Exception):
            raise


def _write_on(link: Link, work: Doorbell) -> None:
    transport, core, outlet = link.transport, link.core, link.outlet
    binary = link.codec.binary
    yielded_at = transport.sent_bytes
    while link.cause is None:
        batch = core.take_batch()
        if batch or link.nudged:
            link.nudged = False
            if batch and (link.hooks.observers or logs_frames(DEBUG)):
                link.hooks.sent(link.id, batch, core.envelopes, binary)
            transport.send(batch, binary)
            if batch:
                _note_sent(link, len(batch))
            outlet.batch_left()
            if transport.sent_bytes - yielded_at >= BATCH_BYTES:
                # A remote that reads as fast as this writes would leave no turn to anybody else.
                yielded_at = transport.sent_bytes
                gevent.sleep(0)
        elif not link.say_farewell():
            link.show_progress()
            work.rest()


def last_queued(link: Link) -> None:
    """A frame has been queued that nothing of its stream follows. It leaves at once if nothing else is to join it.

    That is when nobody else is due to run, and for the first of those that come without a wait in between. To have the
    writer do it would take two switches while the remote waits.
    """
    bell, turns = link.bell, link.turns
    if bell is None or not bell.resting or link.wrote_at == turns.waits or not turns.is_free():
        link.wake_writer()
        return
    lanes = link.core.lanes
    if lanes.queued_bytes != lanes.whole_bytes or link.hooks.observers or logs_frames(DEBUG):
        # A codec that makes fragments, an observer or a log handler may wait.
        bell.ring()
        return
    link.wrote_at = turns.waits
    write_at_once(link)


def write_at_once(link: Link) -> None:
    """Write what is queued in the caller's turn, in place of a writer that rests. Never switches.

    What the kernel does not take is the transport's to write, which wakes the writer for it. Where the connection is
    gone it ends in the hub's next turn, as if the writer had found that out: the caller may be a handler that is to be
    stopped.
    """
    run_callback = link.hub.loop.run_callback
    link.writes_at_once = True
    try:
        batch = link.core.take_batch()
        link.transport.send_at_once(batch, link.codec.binary)
        _note_sent(link, len(batch))
        link.outlet.batch_left()
    except ConnectionClosed as closed:
        run_callback(link.terminate, closed)
    except BaseException as error:
        # It has been taken out of the queue and cannot be put back.
        run_callback(link.crashed, "writer", error)
        if not isinstance(error, Exception):
            raise
    finally:
        link.writes_at_once = False


def _note_sent(link: Link, frames: int) -> None:
    link.frames_sent += frames
    if link.heartbeat is not None:
        link.heartbeat.sent(frames)
