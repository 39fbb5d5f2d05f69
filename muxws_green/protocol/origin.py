"""Which web pages may open a connection (PROTOCOL §11).

A browser sends a site's cookies with a WebSocket handshake whatever page asked for it, and no CORS rule applies, so an
endpoint that trusts cookies has to look at `Origin`. Here that is a pure function of three header values. The
invariant: more than one `Origin`, which WSGI hosts join with a comma, is refused before any rule is asked. Called by
the acceptor before it upgrades anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import IPv6Address

from zope.interface import implementer

from muxws_green.interfaces import IOriginPolicy

#: The port that an origin of this scheme has where it names none.
DEFAULT_PORTS = {"http": 80, "https": 443}

#: What `allowed_origins` may be.
AllowedOrigins = Iterable[str] | IOriginPolicy | Callable[[str | None], object]

# A name of RFC 3986 without percent signs and commas: a browser decodes the one, and the other joins repeated headers.
_AUTHORITY = re.compile(
    r"""(?P<host> \[ (?P<ipv6> [0-9A-Fa-f:.]+ ) \] | [A-Za-z0-9._~!$&'()*+;=-]+ ) (?: : (?P<port> [0-9]{1,5} ) )?""",
    re.VERBOSE,
)


def parse_origin(value: str) -> tuple[str, str, int] | None:
    """The scheme, host and port of a serialized origin.

    Args:
        value: `http://host[:port]` or `https://host[:port]`; surrounding space and one trailing `/` are ignored.

    Returns:
        Scheme and host in lower case and the port, 80 or 443 where none is named; an IPv6 host keeps its brackets.
        None for anything else: another scheme, a path, user information, a port above 65535, `null`.
    """
    scheme, separator, authority = value.strip().removesuffix("/").partition("://")
    default_port = DEFAULT_PORTS.get(scheme.lower())
    parsed = parse_authority(authority)
    if not separator or default_port is None or parsed is None:
        return None
    host, port = parsed
    return scheme.lower(), host, default_port if port is None else port


@lru_cache(maxsize=32)
def parse_authority(value: str) -> tuple[str, int | None] | None:
    """The host and port of `host[:port]`, the form of a `Host` header (RFC 9110 §7.2).

    Returns:
        The host in lower case and the port, None where none is named; None alone where `value` is not of that form,
        which includes the join of several.
    """
    match = _AUTHORITY.fullmatch(value)
    if match is None:
        return None
    if match["ipv6"] is not None:
        try:
            IPv6Address(match["ipv6"])
        except ValueError:
            return None
    port = None if match["port"] is None else int(match["port"])
    if port is not None and port > 65_535:
        return None
    return match["host"].lower(), port


def several(value: str) -> list[str]:
    """The values of a header that may have been repeated and joined with a comma, each without surrounding space."""
    return [entry.strip() for entry in value.split(",")]


def _parse_listed(origins: object, argument: str) -> frozenset[tuple[str, str, int]]:
    if isinstance(origins, str | bytes) or not isinstance(origins, Iterable):
        raise TypeError(f"{argument} takes several origins, such as [{'https://example.com'!r}], not {origins!r}")
    parsed = set()
    for entry in origins:
        origin = parse_origin(entry) if isinstance(entry, str) else None
        if origin is None:
            raise ValueError(f"{entry!r} in {argument} is not an origin of the form http(s)://host[:port]")
        parsed.add(origin)
    return frozenset(parsed)


@implementer(IOriginPolicy)
class SameOrigin:
    """Allows pages that were loaded from the host which the request is addressed to.

    Host and port are compared, the scheme is not: `Host` has none, and behind a proxy that ends TLS the request arrives
    as plain HTTP. A `Host` without a port means the default port of the origin's scheme. No page can set either header.

    Args:
        also: Further origins to allow, whatever the request's host.
        trust_forwarded_host: Take the first entry of `X-Forwarded-Host` in place of `Host` where the request has that
            header. Right behind a proxy that sets it itself and so overwrites what a client sent.

    Raises:
        TypeError: `also` is a single str.
        ValueError: An entry of `also` is not an origin.
    """

    def __init__(self, *, also: Iterable[str] = (), trust_forwarded_host: bool = False) -> None:
        self._also = _parse_listed(also, "also")
        self._trust_forwarded_host = trust_forwarded_host

    def __repr__(self) -> str:
        also = sorted(f"{scheme}://{host}:{port}" for scheme, host, port in self._also)
        return f"SameOrigin(also={also!r}, trust_forwarded_host={self._trust_forwarded_host!r})"

    def allows(self, origin: str | None, host: str | None, forwarded_host: str | None) -> bool:
        """Whether the page's host is the request's, or its origin one of `also`; False for what is not an origin."""
        page = None if origin is None else parse_origin(origin)
        if page is None:
            return False
        if page in self._also:
            return True
        if self._trust_forwarded_host and forwarded_host is not None:
            addressed = parse_authority(several(forwarded_host)[0])
        else:
            addressed = None if host is None else parse_authority(host.strip())
        if addressed is None:
            return False
        scheme, page_host, page_port = page
        name, port = addressed
        return name == page_host and (DEFAULT_PORTS[scheme] if port is None else port) == page_port


@implementer(IOriginPolicy)
class OriginCheck:
    """A compiled policy: refuses a repeated `Origin` and asks the rule about everything else.

    Args:
        rule: Asked like `allows`; `origin` is a single value or None.
    """

    def __init__(self, rule: Callable[[str | None, str | None, str | None], object]) -> None:
        self._rule = rule

    def allows(self, origin: str | None, host: str | None, forwarded_host: str | None) -> bool:
        """Whether the request may be upgraded. What a callable of the application raises comes out of here."""
        if origin is not None and "," in origin:
            return False
        return bool(self._rule(origin, host, forwarded_host))


def compile_policy(allowed_origins: AllowedOrigins | None) -> OriginCheck | None:
    """Make one policy of whatever `allowed_origins` may be; once, before any request.

    Args:
        allowed_origins: Origins, of which one must equal the request's; an `IOriginPolicy` such as `SameOrigin`; or a
            callable that is given the single `Origin` value as it stands in the request (`"null"` too), or None where
            there is none, and whose truth decides. None: nothing is checked.

    Returns:
        The policy; None where nothing is to be checked.

    Raises:
        TypeError: A single str, or something that is none of these.
        ValueError: An entry is not an origin.
    """
    if allowed_origins is None or isinstance(allowed_origins, OriginCheck):
        return allowed_origins
    allows = getattr(allowed_origins, "allows", None)
    if callable(allows):
        return OriginCheck(allows)
    if callable(allowed_origins):
        decide = allowed_origins
        return OriginCheck(lambda origin, host, forwarded_host: decide(origin))
    allowed = _parse_listed(allowed_origins, "allowed_origins")
    return OriginCheck(lambda origin, host, forwarded_host: origin is not None and parse_origin(origin) in allowed)
