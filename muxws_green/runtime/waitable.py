"""Objects that `gevent.wait` and `gevent.iwait` take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from gevent.event import Event


class Waitable(ABC):
    """Ready once an event of its own is set; links get the object itself, as gevent's waiting functions expect."""

    @abstractmethod
    def _done_event(self) -> Event:
        """The event that says that it is over."""

    def ready(self) -> bool:
        """Whether it is over."""
        return bool(self._done_event().is_set())

    def rawlink(self, callback: Callable[[Any], object]) -> None:
        """Call `callback(self)` in the hub once it is over; soon, where it is already."""
        links: dict[Callable[[Any], object], Callable[[Any], object]] = self.__dict__.setdefault("_links", {})

        def call(_event: object) -> None:
            links.pop(callback, None)
            callback(self)

        links[callback] = call
        self._done_event().rawlink(call)

    def unlink(self, callback: Callable[[Any], object]) -> None:
        """Forget a callback; nothing where it is unknown or was called."""
        call = self.__dict__.get("_links", {}).pop(callback, None)
        if call is not None:
            self._done_event().unlink(call)
