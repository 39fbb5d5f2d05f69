"""Which codec goes by which name. A process-wide table, filled explicitly: `json` is there from the start."""

from __future__ import annotations

import re
from typing import Any, Final

from zope.interface.interfaces import IMethod

from muxws_green.codecs.json import JsonCodec
from muxws_green.errors import CodecNotRegistered
from muxws_green.interfaces import ICodec
from muxws_green.settings import CODEC_VARIABLE, settings

#: What may stand in a `Sec-WebSocket-Protocol` entry (RFC 6455 §4.1, RFC 9110 §5.6.2).
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_MSGPACK_HINT: Final = "; the codec for msgpack is muxws_green.codecs.MsgpackCodec()"

#: What of `ICodec` is called; found out once, since every dial checks its codec.
_METHODS: Final[tuple[str, ...]] = tuple(
    name
    for name, member in ICodec.namesAndDescriptions()  # type: ignore[attr-defined]
    if IMethod.providedBy(member)
)

_codecs: dict[str, ICodec] = {}


def register_codec(name: str, codec: ICodec) -> None:
    """Make a codec available as `name`, in place of one registered before under it.

    Args:
        name: What `MUXWS_CODEC` and the subprotocol `muxws.v1.<name>` call it; the codec's own `name`.
        codec: An object that offers `ICodec`; `IEnvelopeCodec` besides makes it faster.

    Raises:
        ValueError: The name cannot stand in an HTTP header, or is not the codec's own.
        TypeError: The object lacks something of `ICodec`.
    """
    _check_codec(codec)
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise ValueError(f"{name!r} cannot be a codec's name: it becomes part of an HTTP header")
    if name != codec.name:
        raise ValueError(f"the codec calls itself {codec.name!r}, so the other end could not know it as {name!r}")
    _codecs[name] = codec


def get_codec(name: str) -> ICodec:
    """The codec registered as `name`.

    Raises:
        CodecNotRegistered: There is none; there is no fallback.
    """
    try:
        return _codecs[name]
    except KeyError:
        available = registered_codecs()
        raise CodecNotRegistered(
            f"no codec is registered as {name!r} ({CODEC_VARIABLE}={settings.codec!r}); registered are "
            f"{', '.join(available)}. Call register_codec({name!r}, ...) before connecting, or change {CODEC_VARIABLE}"
            f"{_MSGPACK_HINT if name == 'msgpack' else ''}",
            configured=name,
            available=available,
        ) from None


def registered_codecs() -> list[str]:
    """The names of all registered codecs, sorted."""
    return sorted(_codecs)


def resolve_codec(codec: ICodec | str | None = None) -> ICodec:
    """What the `codec=` argument of `connect` and `accept` means.

    Args:
        codec: A codec, a registered name, or None for the name in `settings`.

    Raises:
        CodecNotRegistered: No codec has that name.
        TypeError: It is neither.
    """
    if codec is None:
        return get_codec(settings.codec)
    if isinstance(codec, str):
        return get_codec(codec)
    _check_codec(codec)
    return codec


def _check_codec(codec: Any) -> None:
    if isinstance(codec, type):
        raise TypeError(f"a codec is an object, not the class {codec.__name__}; pass {codec.__name__}()")
    wrong = [name for name in _METHODS if not callable(getattr(codec, name, None))]
    if not isinstance(getattr(codec, "name", None), str):
        wrong.append("name (a str)")
    if not isinstance(getattr(codec, "binary", None), bool):
        wrong.append("binary (a bool)")
    if wrong:
        raise TypeError(f"{codec!r} is no codec: it lacks {', '.join(wrong)}")


register_codec("json", JsonCodec())
