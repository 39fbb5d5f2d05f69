"""C11: a sender that is killed costs its stream and never half a frame; a killed writer ends the connection."""

from __future__ import annotations

import gevent
import pytest
from gevent.event import Event

from muxws_green import ResetCode
from muxws_green.testing import Gone
from tests.serving import PATIENCE, Served, client, until

MEGABYTES_5 = 5_000_000


@pytest.mark.case("C11")
@pytest.mark.parametrize("how", ["kill", "timeout"])
def test_a_handler_is_stopped_while_it_sends_to_a_remote_that_has_stalled(how):
    running = []
    full = Event()

    def handler(payload, stream):
        if payload != "big":
            stream.reply(payload)
            return
        running.append(gevent.getcurrent())
        stream.send("x" * MEGABYTES_5)
        full.set()
        if how == "timeout":
            with gevent.Timeout(0.001):
                stream.send("y" * MEGABYTES_5)
        else:
            stream.send("y" * MEGABYTES_5)

    with (
        Served(handler, max_payload_bytes=4 * MEGABYTES_5) as served,
        client(served, receive_buffer_bytes=65_536) as raw,
    ):
        raw.send({"type": "open", "stream": 1, "payload": "big", "end": True})
        assert full.wait(PATIENCE)
        if how == "kill":
            # It waits for room by now, as nothing else of it can be done.
            running[0].kill(block=False)
        until(lambda: running[0].dead)
        raw.send({"type": "open", "stream": 3, "payload": "small", "end": True})
        seen, answer = [], None
        while answer is None or not any(frame.type == "reset" for frame in seen):
            frame = raw.receive(PATIENCE)
            if frame.stream == 3:
                answer = frame
            else:
                seen.append(frame)
        assert answer.payload == "small"
        assert seen[-1].type == "reset"
        # The wait was interrupted, which cancels; what the handler then raises comes too late to say more.
        assert seen[-1].code == ResetCode.CANCELLED
        assert served.peer.is_open
        assert served.peer.stats.queued_bytes == 0


@pytest.mark.case("C11")
def test_a_writer_that_is_killed_in_mid_frame_ends_the_connection_and_says_so():
    reasons = []
    with (
        Served(on_connect=lambda peer: peer.on_close(reasons.append)) as served,
        client(served, receive_buffer_bytes=65_536) as raw,
    ):
        peer = served.peer
        stream = peer.open("x" * MEGABYTES_5)
        link = peer._link
        until(lambda: link.transport._in_frame and link.transport.unacknowledged())
        link._writer.kill(block=False)
        until(lambda: reasons)
        assert not peer.is_open
        assert peer.is_closed
        assert (reasons[0].code, reasons[0].was_clean) == (1011, False)
        assert stream.closed.is_set()
        with pytest.raises(Gone) as gone:
            while True:
                raw.receive(PATIENCE)
        # No close frame may stand in the middle of the message that was cut.
        assert gone.value.close is None
