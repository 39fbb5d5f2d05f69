"""The bound on nesting, which is the same under every codec and in every Python (PROTOCOL §4).

Libraries have bounds of their own, between 500 and 10,000 levels, that vary with the version and with the depth of the
caller's stack. `MAX_NESTING` lies below all of them, so what one peer can send every other one can read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

#: How many containers may lie inside each other in one payload, in headers or in trailers; a bare number is at 0.
MAX_NESTING: Final = 500

#: What an envelope adds to the nesting of its fields.
ENVELOPE_NESTING: Final = 1

_SCALARS: Final[frozenset[type]] = frozenset({str, int, float, bool, type(None), bytes})
_CONTAINERS: Final = (dict, list, tuple)


def nested_deeper(value: Any, levels: int, leaves: frozenset[type] = _SCALARS) -> bool:
    """Whether more than `levels` containers lie inside each other in `value`, which must not be circular.

    Takes time in proportion to the number of values, room in proportion to that of containers, and no stack. Keys are
    not looked at: JSON has none that hold anything, and no decoder lets a msgpack list be one.

    Args:
        leaves: Types that hold nothing, however they look.
    """
    level = _containers([value], leaves)
    for _ in range(levels):
        # Most levels hold no container, and this pass over their types costs half of the one that looks for some.
        if leaves.issuperset(map(type, _contents(level))):
            return False
        level = _containers(_contents(level), leaves)
    return bool(level)


def _contents(level: list[Any]) -> Iterator[Any]:
    return chain.from_iterable([item.values() if isinstance(item, dict) else item for item in level])


def _containers(values: Iterable[Any], leaves: frozenset[type]) -> list[Any]:
    return [value for value in values if type(value) not in leaves and isinstance(value, _CONTAINERS)]


def leaves_with(*types: type) -> frozenset[type]:
    """The types without content, and besides them `types`."""
    return _SCALARS.union(types)
