"""What a type checker accepts of the contracts. Read by mypy --strict in `test_typing.py`; never run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from zope.interface import implementer

from muxws_green.codecs.json import JsonCodec
from muxws_green.interfaces import IClock, ICodec, IErrorSerializer, IOriginPolicy, ITimerHandle, ITransport
from muxws_green.protocol.frames import Frame


class PlainCodec:
    """A user's codec that knows nothing of zope: it has the methods, and that is enough."""

    name = "plain"
    binary = False

    def encode(self, frame: Frame) -> str:
        return repr(frame)

    def decode(self, message: str | bytes) -> Frame:
        raise NotImplementedError

    def encode_payload(self, value: object) -> str:
        return repr(value)

    def decode_payload(self, data: str | bytes) -> Any:
        raise NotImplementedError


@implementer(ICodec)
class DeclaredCodec(PlainCodec):
    """One that says so."""


class Handle:
    def cancel(self) -> None: ...


class Clock:
    """Returns a narrower type and takes one more optional parameter."""

    def now(self) -> float:
        return 0.0

    def sleep(self, seconds: float, *, jump: bool = False) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Handle:
        return Handle()

    def watch(self, pending: Callable[[], int | None]) -> Handle:
        return Handle()


def serialize(error: BaseException) -> Any:
    return str(error)


class Loopback:
    def __init__(self) -> None:
        self.kept: list[str | bytes] = []

    def attach(self, wake: Callable[[], None]) -> None: ...

    def receive(self) -> Sequence[str | bytes]:
        return self.kept

    def send(self, messages: Sequence[bytes], binary: bool) -> None:
        self.kept += messages

    def close(self, code: int, reason: str) -> None: ...

    def abort(self, code: int | None = None) -> None: ...

    def unacknowledged(self) -> None:
        return None


def takes(
    codec: ICodec, clock: IClock, serializer: IErrorSerializer, origins: IOriginPolicy | None, transport: ITransport
) -> ITimerHandle:
    message: str | bytes = codec.encode(codec.decode(codec.name))
    if isinstance(message, bytes):
        transport.send([message], codec.binary)
    serializer(ValueError())
    return clock.call_later(clock.now(), lambda: None)


takes(PlainCodec(), Clock(), serialize, None, Loopback())
takes(DeclaredCodec(), Clock(), lambda error: None, None, Loopback())
takes(JsonCodec(), Clock(), serialize, None, Loopback())
