"""The subprotocol `muxws.v1.<codec>`: what a dialer offers and what an acceptor makes of it (PROTOCOL §2).

The two ends assert their codec here; they do not negotiate, and nothing is fallen back to. Other entries of an offer
are the application's, often credentials: none is ever shown.

Pure; called by the transports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from muxws_green.errors import CodecMismatch

#: Ends in the protocol's only version.
PREFIX: Final = "muxws.v1."

#: What every version's entries begin with.
_ANY_VERSION: Final = "muxws."

#: How much of a remote's text a log line or an error shows, in characters of its repr.
_SHOWN_CHARACTERS: Final = 64

_ADVICE: Final = (
    "Both ends must name the same codec: MUXWS_CODEC in the environment of a Python end, VITE_MUXWS_CODEC in the build "
    "of a browser end"
)


def offer(codec_name: str, extra: Sequence[str] = ()) -> list[str]:
    """The entries of `Sec-WebSocket-Protocol` that a dialer sends.

    Args:
        codec_name: The name of its codec.
        extra: The application's own entries, which muxws ignores at the other end.

    Raises:
        TypeError: `extra` is a bare str, which would fall apart into characters.
    """
    if isinstance(extra, str):
        raise TypeError("further subprotocols are a sequence of str, not one str")
    return [PREFIX + codec_name, *extra]


def select(offered: Sequence[str], codec_name: str) -> str | None:
    """The entry that an acceptor selects.

    Args:
        offered: All entries, over all header lines, in their order.
        codec_name: The name of the acceptor's codec.

    Returns:
        The first entry of `muxws.v1`, if it is exactly ours; None where the upgrade is to be refused.
    """
    for entry in offered:
        if entry.startswith(PREFIX):
            return entry if entry == PREFIX + codec_name else None
    return None


def refusal_text(offered: Sequence[str], codec_name: str) -> str:
    """Why an acceptor refuses this offer, for its log.

    Shows entries that begin with `muxws.`; of all others only how many there are.
    """
    ours = [_shown(entry) for entry in offered if entry.startswith(_ANY_VERSION)]
    others = len(offered) - len(ours)
    return (
        f"upgrade refused: this end speaks {PREFIX}{codec_name}, the dialer offered "
        f"{', '.join(ours) or 'no muxws entry'} and {others} of other kinds. {_ADVICE}"
    )


def mismatch(
    codec_name: str, *, status: int = 400, selected: str | None = None, available: Sequence[str] = ()
) -> CodecMismatch:
    """The error of a dialer whose offer was not taken. It is composed here: a browser cannot read an answer's body.

    Args:
        codec_name: The codec that was offered.
        status: 400, or 101 where the acceptor upgraded and selected something else.
        selected: What it selected then; None for nothing.
        available: The registered names, for the error's attribute.
    """
    if status == 101:
        answer = f"selected {_shown(selected)}" if selected else "selected no subprotocol"
    else:
        answer = f"answered with HTTP {status}"
    return CodecMismatch(
        f"the acceptor did not take the offer of {PREFIX}{codec_name}: it {answer}. {_ADVICE}",
        configured=codec_name,
        available=available,
    )


def _shown(entry: str) -> str:
    return repr(entry)[:_SHOWN_CHARACTERS]
