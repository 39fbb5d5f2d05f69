"""What a dialer was told, judged and captured by value; dialers that were told the same share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from muxws_green.interfaces import IBackoffPolicy, IDialer
from muxws_green.runtime.options import Options, check_methods


@dataclass(frozen=True)
class Hello:
    """What a dialer says first on every socket, captured by value.

    Args:
        encoded: The payload in its encoded form.
        headers: Its headers; None for none.
        timeout: Seconds in which the acceptor must acknowledge it.
    """

    encoded: str | bytes
    headers: Mapping[str, Any] | None
    timeout: float


@dataclass(frozen=True)
class Plan:
    """How a dialer connects.

    Args:
        options: The settings of its connections.
        dialer: Opens its sockets.
        policy: How long to wait, and how often to try.
        hello: What to say first on each; None for nothing.

    Raises:
        TypeError: The policy is none.
    """

    options: Options
    dialer: IDialer
    policy: IBackoffPolicy
    hello: Hello | None = None

    def __post_init__(self) -> None:
        check_methods("reconnect", self.policy, "delay", "should_retry")
