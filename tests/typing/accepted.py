"""What a type checker accepts of the contracts. Read by mypy --strict in `test_typing.py`; never run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zope.interface import implementer

from muxws_green.codecs.json import JsonCodec
from muxws_green.interfaces import IBackoffPolicy, IClock, ICodec, IErrorSerializer, IOriginPolicy, ITimerHandle
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


class Constant:
    def delay(self, attempts: int, draw: Callable[[], float]) -> int:
        return 1

    def should_retry(self, attempts: int) -> bool:
        return True


def takes(
    codec: ICodec, clock: IClock, serializer: IErrorSerializer, origins: IOriginPolicy | None, backoff: IBackoffPolicy
) -> ITimerHandle:
    message: str | bytes = codec.encode(codec.decode(codec.name))
    assert isinstance(message, bytes) == codec.binary
    pause: float = backoff.delay(1, lambda: 0.0)
    serializer(ValueError())
    return clock.call_later(pause, lambda: None)


takes(PlainCodec(), Clock(), serialize, None, Constant())
takes(DeclaredCodec(), Clock(), lambda error: None, None, Constant())
takes(JsonCodec(), Clock(), serialize, None, Constant())
