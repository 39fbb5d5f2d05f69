"""What a type checker must refuse: each line marked `# E: code`, and no other. Read by `test_typing.py`; never run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zope.interface import implementer

from muxws_green.codecs.json import JsonCodec
from muxws_green.interfaces import IClock, ICodec, IErrorSerializer, IOriginPolicy, IPeer, IStream
from muxws_green.protocol.frames import Frame


class Complete:
    name = "complete"
    binary = False

    def encode(self, frame: Frame) -> str:
        return ""

    def decode(self, message: str | bytes) -> Frame:
        raise NotImplementedError

    def encode_payload(self, value: object) -> str:
        return ""

    def decode_payload(self, data: str | bytes) -> Any:
        return None


class LacksMethod:
    name = "lacks"
    binary = False

    def encode(self, frame: Frame) -> str:
        return ""


@implementer(ICodec)
class DeclaresAndLacksMethod(LacksMethod):
    """A declaration is no proof."""


class LacksAttribute:
    name = "lacks"

    def encode(self, frame: Frame) -> str:
        return ""

    def decode(self, message: str | bytes) -> Frame:
        raise NotImplementedError

    def encode_payload(self, value: object) -> str:
        return ""

    def decode_payload(self, data: str | bytes) -> Any:
        return None


class WrongAttribute(Complete):
    name: int = 3  # type: ignore[assignment]


class WrongReturn(Complete):
    def encode(self, frame: Frame) -> int:  # type: ignore[override]
        return 0


class WrongArgument(Complete):
    def decode_payload(self, data: int) -> Any:  # type: ignore[override]
        return None


class RequiresMore(Complete):
    def encode_payload(self, value: object, style: str) -> str:  # type: ignore[override]
        return style


class ClockOfStrings:
    def now(self) -> str:
        return ""

    def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> None: ...


def takes_codec(codec: ICodec) -> None: ...
def takes_clock(clock: IClock) -> None: ...
def takes_serializer(serializer: IErrorSerializer) -> None: ...
def takes_origins(policy: IOriginPolicy) -> None: ...


takes_codec(Complete())
takes_codec(JsonCodec())
takes_codec(LacksMethod())  # E: arg-type
takes_codec(DeclaresAndLacksMethod())  # E: arg-type
takes_codec(LacksAttribute())  # E: arg-type
takes_codec(WrongAttribute())  # E: arg-type
takes_codec(WrongReturn())  # E: arg-type
takes_codec(WrongArgument())  # E: arg-type
takes_codec(RequiresMore())  # E: arg-type
takes_codec(Complete)  # E: arg-type
takes_codec(None)  # E: arg-type
takes_clock(ClockOfStrings())  # E: arg-type
takes_serializer(lambda: None)  # E: arg-type
takes_origins(lambda origin: True)  # E: arg-type


def uses(codec: ICodec, peer: IPeer, stream: IStream) -> None:
    codec.encode("a str is no frame")  # E: arg-type
    codec.compress()  # E: attr-defined
    codec.binary.upper()  # E: attr-defined
    peer.open(1, {"header": "is keyword-only"})  # E: call-arg
    peer.request(1, timeout="5")  # E: arg-type
    peer.open(1).send(2, trailers={})  # E: call-arg
    stream.send()  # E: call-arg
    stream.id = codec.name  # E: assignment
    ICodec()  # E: misc
