"""The objects that there are, by their kinds."""

from __future__ import annotations

import gc
from typing import Any


def alive(*kinds: type) -> list[Any]:
    """All that are of one of these kinds, in no order.

    By `type` and not by `isinstance`, which raises ReferenceError for a weak proxy whose object is gone.
    """
    return [each for each in gc.get_objects() if issubclass(type(each), kinds)]
