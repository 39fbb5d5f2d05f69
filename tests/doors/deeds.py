"""What two peers of ours do with each other in the tests of doors. Both ends have all of it, so that either role can
begin: a `Worker` does a deed itself, or asks the one at the other end to do it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import Event

from muxws_green.errors import StreamReset
from muxws_green.protocol.states import StreamState
from muxws_green.runtime.handlers import HandlerStopped
from muxws_green.runtime.peer import Peer
from muxws_green.runtime.stream import Stream
from tests.interop.matter import blob, digest
from tests.interop.ours import Worker as InteropWorker
from tests.transports.raw import PATIENCE

#: What peers in these tests are told besides their codec. A heartbeat would be one frame more than a test expects.
OPTIONS: dict[str, Any] = {"max_concurrent_streams": 512, "heartbeat": None}


class Worker(InteropWorker):
    """One peer at work. `act_…` are done for the other end; the methods without that are done to it.

    What the reference can be asked for in `tests.interop`, this one does too.
    """

    def __init__(self, codec_name: str = "json") -> None:
        super().__init__(codec_name)
        self.name = ""
        self.heard: list[Any] = []
        self._resets: list[list[Any]] = []
        self._changed = Event()
        self._meeting = 0
        self._all_met = Event()

    def take(self, peer: Peer) -> None:
        """Look after a peer, from its first frame on."""
        self.peer = peer
        peer.on_stream(self.act)
        peer.on_close(self._note_close)

    def _note_close(self, reason: Any) -> None:
        self.closes.append(reason)
        self._note()

    def _note(self) -> None:
        changed, self._changed = self._changed, Event()
        changed.set()

    def wait_for(self, what: Callable[[], Any]) -> Any:
        """What a function returns, once that is true."""
        with gevent.Timeout(PATIENCE, AssertionError(f"{what} has not come true")):
            while not (value := what()):
                self._changed.wait()
            return value

    def told(self) -> list[list[Any]]:
        """What `on_close` has been told, once there was something."""
        return list(self.wait_for(lambda: self.facts()["closes"]))

    def facts(self) -> dict[str, Any]:
        """What this end has seen, as JSON."""
        return {
            "closes": [[reason.code, reason.reason, reason.was_clean, reason.will_retry] for reason in self.closes],
            "opened": [begun["do"] for begun in self.opened],
            "resets": self._resets,
        }

    # For the other end

    def _act_name(self, payload: Any, stream: Stream) -> None:
        self.name = payload["name"]

    def _act_ask(self, payload: Any, stream: Stream) -> None:
        """Do something to whoever asks."""
        stream.reply(getattr(self, payload["deed"])(**payload["args"]))

    def _act_say(self, payload: Any, stream: Stream) -> None:
        stream.reply(payload["value"])

    def _act_meet(self, payload: Any, stream: Stream) -> None:
        """Answer when as many streams as announced are here at once."""
        self._meeting += 1
        if self._meeting == payload["of"]:
            self._all_met.set()
        self._all_met.wait()
        stream.reply(payload["n"])

    def _act_collect(self, payload: Any, stream: Stream) -> None:
        """Listen to the end, and only then speak."""
        items = list(stream)
        assert stream.state is StreamState.HALF_CLOSED_REMOTE
        for item in items:
            stream.send(item)
        stream.end(trailers={"count": len(items)})

    def _act_listen(self, payload: Any, stream: Stream) -> None:
        """Speak to the end, and only then listen."""
        stream.reply("go on")
        assert stream.state is StreamState.HALF_CLOSED_LOCAL
        self.heard = list(stream)
        self._note()

    def _act_heard(self, payload: Any, stream: Stream) -> None:
        stream.reply(self.wait_for(lambda: self.heard))

    def _act_refuse(self, payload: Any, stream: Stream) -> None:
        stream.reset(payload["code"], payload["reason"])

    def _act_wait(self, payload: Any, stream: Stream) -> None:
        """Go on until somebody ends it, and remember how."""
        stream.send("here")
        try:
            for _ in stream:
                raise AssertionError("nothing was to be sent")
        except (HandlerStopped, StreamReset) as error:
            end = error.cause if isinstance(error, HandlerStopped) else error
            self._resets.append([type(end).__name__, int(end.code), end.reason])
            self._note()
            raise

    def _act_resets(self, payload: Any, stream: Stream) -> None:
        stream.reply(self.wait_for(lambda: self._resets))

    def _act_leave(self, payload: Any, stream: Stream) -> None:
        """Close the connection; the stream on which it was asked for is not waited for."""
        stream.reply("leaving")
        self.peer.close(reason=payload["reason"], drain=payload["drain"])

    # To the other end

    def say(self, value: Any) -> Any:
        """Have something said back."""
        return self.peer.request({"do": "say", "value": value}, timeout=PATIENCE)

    def meet(self, count: int) -> list[int]:
        """Open so many streams that are all live at once."""
        streams = [self.peer.open({"do": "meet", "n": n, "of": count}, end=True) for n in range(count)]
        return [stream.result(timeout=PATIENCE) for stream in streams]

    def carry(self, size_bytes: int) -> list[str]:
        """Send a big payload and get it back; the digests of both."""
        value = blob(size_bytes, binary=self.binary)
        return [digest(value), digest(self.say(value))]

    def finish_first(self, items: list[Any]) -> dict[str, Any]:
        """End this side of a stream before the other has said anything."""
        stream = self.peer.open({"do": "collect"})
        for item in items:
            stream.send(item)
        stream.end()
        assert stream.state is StreamState.HALF_CLOSED_LOCAL
        return {"got": list(stream), "trailers": stream.trailers, "state": stream.state.value}

    def finish_last(self, items: list[Any]) -> list[Any]:
        """Send on a stream whose other side has ended."""
        stream = self.peer.open({"do": "listen"})
        assert list(stream) == ["go on"]
        assert stream.state is StreamState.HALF_CLOSED_REMOTE
        for item in items:
            stream.send(item)
        stream.end()
        heard: list[Any] = self.peer.request({"do": "heard"}, timeout=PATIENCE)
        return heard

    def reset(self, code: int, reason: str) -> list[Any]:
        """Reset a stream while the other end's handler is at it; how that has ended."""
        stream = self.peer.open({"do": "wait"})
        assert stream.receive(timeout=PATIENCE) == "here"
        stream.reset(code, reason)
        (end,) = self.peer.request({"do": "resets"}, timeout=PATIENCE)
        return list(end)

    def be_reset(self, code: int, reason: str) -> list[Any]:
        """Open a stream that is reset; as what, and whether there is a life after it."""
        stream = self.peer.open({"do": "refuse", "code": code, "reason": reason})
        try:
            stream.result(timeout=PATIENCE)
        except StreamReset as error:
            return [type(error).__name__, int(error.code), error.reason, self.say("alive")]
        raise AssertionError("it was not reset")
