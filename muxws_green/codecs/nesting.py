"""The bound on nesting, which is the same under every codec and in every Python (PROTOCOL §4).

Libraries have bounds of their own, between 500 and 10,000 levels, that vary with the version and with the depth of the
caller's stack. `MAX_NESTING` lies below all of them, so what one peer can send every other one can read.
"""

from __future__ import annotations

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

    Takes time in proportion to the number of values, and no stack.

    Args:
        leaves: Types that hold nothing, however they look.
    """
    level = [value] if isinstance(value, _CONTAINERS) and type(value) not in leaves else []
    for _ in range(levels):
        if not level:
            return False
        below = list(chain.from_iterable(item.values() if isinstance(item, dict) else item for item in level))
        if leaves.issuperset(map(type, below)):
            return False
        level = [item for item in below if type(item) not in leaves and isinstance(item, _CONTAINERS)]
    return bool(level)


def leaves_with(*types: type) -> frozenset[type]:
    """The types without content, and besides them `types`."""
    return _SCALARS.union(types)
