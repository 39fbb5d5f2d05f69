"""What is kept of an error that outlives what it happened in."""

from __future__ import annotations

from muxws_green.runtime.guard import forget_frames


def raised(cause: BaseException | None) -> ValueError:
    try:
        raise ValueError from cause
    except ValueError as error:
        return error


def test_no_error_of_a_chain_keeps_its_frames() -> None:
    first = raised(None)
    last = raised(raised(first))
    assert first.__traceback__ is not None
    forget_frames(last)
    assert last.__traceback__ is first.__traceback__ is None


def test_a_chain_that_has_no_end_is_followed_for_a_while() -> None:
    first = raised(None)
    first.__cause__ = last = raised(first)
    forget_frames(last)
    assert last.__traceback__ is first.__traceback__ is None
