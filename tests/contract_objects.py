"""How to make one object of every class that declares an interface, for `tests/test_contracts.py`.

A new class that says `@implementer` needs one function here; the test fails until it has one. A function that needs to
tidy up yields the object in place of returning it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from inspect import isgeneratorfunction
from typing import Any, TypeVar

from muxws_green.codecs.envelopes import FrameEnvelopes
from muxws_green.codecs.json import JsonCodec
from muxws_green.codecs.msgpack import MsgpackCodec
from muxws_green.protocol.origin import OriginCheck, SameOrigin
from muxws_green.transports.memory import MemoryTransport, memory_pair

Factory = TypeVar("Factory", bound=Callable[[], object])

#: class -> a context manager that gives one object of it.
FACTORIES: dict[type, Callable[[], AbstractContextManager[object]]] = {}


def makes(cls: type) -> Callable[[Factory], Factory]:
    """Enter a function as the factory of `cls`."""

    def enter(function: Factory) -> Factory:
        make: Any = function
        FACTORIES[cls] = contextmanager(make) if isgeneratorfunction(make) else lambda: nullcontext(make())
        return function

    return enter


@makes(JsonCodec)
def json_codec() -> JsonCodec:
    return JsonCodec()


@makes(MsgpackCodec)
def msgpack_codec() -> MsgpackCodec:
    return MsgpackCodec()


@makes(FrameEnvelopes)
def frame_envelopes() -> FrameEnvelopes:
    return FrameEnvelopes(JsonCodec())


@makes(SameOrigin)
def same_origin() -> SameOrigin:
    return SameOrigin()


@makes(OriginCheck)
def origin_check() -> OriginCheck:
    return OriginCheck(lambda origin, host, forwarded_host: True)


@makes(MemoryTransport)
def memory_transport() -> MemoryTransport:
    return memory_pair()[0]
