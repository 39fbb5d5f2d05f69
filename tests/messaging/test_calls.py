"""Named calls between two ends, from both roles: what is answered, what is raised, and what that leaves untouched."""

from __future__ import annotations

import gc
import logging
from typing import Any

import gevent
import pytest
from gevent.event import Event

from muxws_green import (
    HandlerStopped,
    ProtocolError,
    RemoteError,
    ResetCode,
    StreamClosed,
    StreamRefused,
    StreamReset,
    StreamTimeout,
)
from muxws_green.messaging import (
    METHOD_HEADER,
    BadAnswerError,
    BadBodyError,
    Message,
    MessagePeer,
    UnknownMethodError,
)
from tests.seeds.scripted import outcome


def method(name: str, handler: Any) -> Any:
    """A `setup` that registers one handler."""
    return lambda peer: peer.on(name, handler)


def still_works(peer: MessagePeer) -> bool:
    """Whether a call that is refused for its name comes back: the connection goes on."""
    with pytest.raises(UnknownMethodError):
        peer.request("is anybody there?", timeout=5.0)
    return not peer.is_closed


# What is answered


def test_a_call_and_its_answer(ends) -> None:
    seen: list[Message] = []

    def add(message: Message) -> Any:
        seen.append(message)
        return message.body["a"] + message.body["b"]

    pair = ends(method("add", add))
    answer = pair.near.request("add", {"a": 2, "b": 3}, timeout=5.0)
    assert answer == Message("add", 5, pair.near)
    assert answer.headers == {}
    assert seen == [Message("add", {"a": 2, "b": 3}, pair.far, {METHOD_HEADER: "add"})]
    assert seen[0].peer is pair.far


def test_a_body_is_null_unless_given_and_so_is_an_answer(ends) -> None:
    pair = ends(method("nothing", lambda message: message.body))
    assert pair.near.request("nothing").body is None
    falsy: list[Any] = [0, "", [], {}, False]
    assert [pair.near.request("nothing", body).body for body in falsy] == falsy


def test_on_is_a_decorator_and_the_last_handler_of_a_name_counts(ends) -> None:
    def setup(peer: MessagePeer) -> None:
        @peer.on("which")
        def first(message: Message) -> str:
            return "first"

        assert callable(first)
        assert peer.on("which", second) is second

    def second(message: Message) -> str:
        return "second"

    pair = ends(setup)
    assert pair.near.request("which").body == "second"
    pair.far.on("which", lambda message: "third")
    assert pair.near.request("which").body == "third"


def test_a_push_is_handled_and_not_answered(ends, clock) -> None:
    heard: list[Any] = []
    pair = ends(method("note", lambda message: heard.append(message.body)))
    assert pair.near.push("note", {"n": 1}) is None
    pair.near.push("note")
    clock.settle()
    assert heard == [{"n": 1}, None]
    assert not pair.near.peer.streams


def test_pushes_that_fail_over_there_change_nothing_here(ends, clock, caplog) -> None:
    def fails(message: Message) -> None:
        raise LookupError("kaputt")

    pair = ends(method("fails", fails))
    with caplog.at_level(logging.WARNING, "muxws"):
        pair.near.push("fails")
        pair.near.push("unknown")
        clock.settle()
    assert [type(record.exc_info[1]) for record in caplog.records] == [LookupError, UnknownMethodError]
    assert still_works(pair.near)


def test_both_ends_call_both_ways_at_once(ends) -> None:
    def setup(peer: MessagePeer) -> None:
        @peer.on("double")
        def double(message: Message) -> Any:
            gevent.sleep(0)
            return 2 * message.body

    pair = ends(setup, setup)
    calls = [(end, n, gevent.spawn(end.request, "double", n, 10.0)) for n in range(50) for end in (pair.near, pair.far)]
    assert [call.get().body for _, _, call in calls] == [2 * n for _, n, _ in calls]


def test_ends_that_call_each_other_recursively(ends) -> None:
    """Each level is a call within the handler of the one before, in the other direction."""

    def setup(peer: MessagePeer) -> None:
        @peer.on("factorial")
        def factorial(message: Message) -> int:
            n: int = message.body
            return 1 if n == 0 else n * message.peer.request("factorial", n - 1, timeout=10.0).body

    pair = ends(setup, setup)
    assert pair.near.request("factorial", 20, timeout=10.0).body == 2_432_902_008_176_640_000


# What is raised


def test_an_unknown_name(ends) -> None:
    pair = ends(method("known", lambda message: 1))
    with pytest.raises(UnknownMethodError, match="no method 'unknown'") as raised:
        pair.near.request("unknown", timeout=5.0)
    assert isinstance(raised.value, RemoteError)
    assert raised.value.code is ResetCode.APPLICATION_ERROR
    assert raised.value.payload["type"] == "UnknownMethodError"
    assert raised.value.stream_id is not None
    with pytest.raises(UnknownMethodError):
        list(pair.near.stream("unknown"))
    assert pair.near.request("known").body == 1


def test_a_name_that_is_long_is_not_echoed_whole(ends) -> None:
    pair = ends()
    with pytest.raises(UnknownMethodError) as raised:
        pair.near.request("x" * 10_000)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize("headers", [None, {}, {"other": "x"}, {METHOD_HEADER: None}])
def test_a_call_that_names_nothing(ends, headers) -> None:
    pair = ends(method("known", lambda message: 1))
    with pytest.raises(RemoteError, match="no header 'method'") as raised:
        pair.near.peer.request(1, headers=headers)
    assert raised.value.payload["type"] == "UnknownMethodError"
    assert pair.near.request("known").body == 1


@pytest.mark.parametrize("name", [7, ["known"], {"known": 1}, True])
def test_a_call_whose_name_is_no_str(ends, name) -> None:
    pair = ends(method("known", lambda message: 1))
    with pytest.raises(RemoteError, match="no method") as raised:
        pair.near.peer.request(1, headers={METHOD_HEADER: name})
    assert raised.value.payload["type"] == "UnknownMethodError"
    assert pair.near.request("known").body == 1


def test_a_handler_that_raises(ends, caplog) -> None:
    def fails(message: Message) -> None:
        raise LookupError(f"no row {message.body}")

    pair = ends(method("fails", fails))
    with caplog.at_level(logging.WARNING, "muxws"), pytest.raises(RemoteError, match="no row 7") as raised:
        pair.near.request("fails", 7)
    assert type(raised.value) is RemoteError
    assert raised.value.payload == {"type": "LookupError", "message": "no row 7"}
    assert still_works(pair.near)


@pytest.mark.parametrize("error", [gevent.Timeout(None), SystemExit(3), gevent.GreenletExit()])
def test_a_handler_that_leaks_what_is_no_exception(ends, error) -> None:
    def leaks(message: Message) -> None:
        raise error

    pair = ends(method("leaks", leaks))
    with pytest.raises(RemoteError):
        pair.near.request("leaks", timeout=5.0)
    assert still_works(pair.near)


def test_a_body_that_the_handler_refuses(ends) -> None:
    def square(message: Message) -> Any:
        if not isinstance(message.body, int):
            raise BadBodyError(f"a number is wanted, not {message.body!r}")
        return message.body**2

    pair = ends(method("square", square))
    with pytest.raises(BadBodyError, match="a number is wanted, not 'x'") as raised:
        pair.near.request("square", "x")
    assert isinstance(raised.value, RemoteError)
    assert pair.near.request("square", 3).body == 9


@pytest.mark.parametrize("body", [object(), {1, 2}, float("nan"), "\ud83d", b"bytes"])
def test_a_body_that_cannot_be_sent_raises_here_and_nothing_is_sent(ends, clock, body) -> None:
    calls: list[Message] = []
    pair = ends(method("any", calls.append))
    sent = pair.near.peer.stats.streams_opened
    for call in (pair.near.request, pair.near.push, pair.near.stream):
        with pytest.raises((TypeError, ValueError)):
            call("any", body)
    clock.settle()
    assert calls == []
    assert pair.near.peer.stats.streams_opened == sent
    assert still_works(pair.near)


def test_an_answer_that_cannot_be_sent(ends, caplog) -> None:
    pair = ends(method("secret", lambda message: object()))
    with caplog.at_level(logging.WARNING, "muxws"), pytest.raises(BadAnswerError, match="answer of 'secret'") as raised:
        pair.near.request("secret")
    assert isinstance(raised.value, RemoteError)
    assert "object" in str(raised.value)
    assert still_works(pair.near)


@pytest.mark.parametrize("name", [None, 7, b"add"])
def test_a_name_is_a_str(ends, name) -> None:
    pair = ends()
    for call in (pair.near.request, pair.near.push, pair.near.stream):
        with pytest.raises(TypeError, match="str"):
            call(name)
    with pytest.raises(TypeError, match="str"):
        pair.near.on(name, print)


async def coroutine(message: Message) -> None:
    pass


async def asynchronous_generator(message: Message) -> Any:
    yield 1


@pytest.mark.parametrize("handler", [7, "add", coroutine, asynchronous_generator])
def test_what_is_no_plain_function_is_refused_where_it_is_registered(ends, handler) -> None:
    pair = ends()
    with pytest.raises(TypeError, match="plain blocking function"):
        pair.near.on("x", handler)
    with pytest.raises(TypeError, match="plain blocking function"):
        pair.near.on("x")(handler)


@pytest.mark.parametrize("handler", [coroutine, asynchronous_generator])
def test_one_that_turns_out_to_be_async_fails_its_call(ends, handler) -> None:
    pair = ends(method("x", lambda message: handler(message)))
    with pytest.raises(RemoteError, match="async"):
        pair.near.request("x")
    gc.collect()
    assert still_works(pair.near)


def test_what_a_handlers_own_calls_are_told_is_not_taken_for_what_its_caller_is_told(ends) -> None:
    """`relay` exists; it is the method that it calls in turn which does not."""

    def relay(message: Message) -> Any:
        return message.peer.request(message.body).body

    def picky(message: Message) -> None:
        raise BadBodyError("never good enough")

    pair = ends(method("relay", relay), method("picky", picky))
    with pytest.raises(RemoteError, match=r"'relay' made a call.* UnknownMethodError: no method 'nowhere'") as raised:
        pair.near.request("relay", "nowhere")
    assert not isinstance(raised.value, UnknownMethodError)
    with pytest.raises(RemoteError, match=r"BadBodyError: never good enough") as raised:
        pair.near.request("relay", "picky")
    assert not isinstance(raised.value, BadBodyError)


def test_an_end_that_redacts_its_errors_redacts_these_too(ends) -> None:
    pair = ends(error_serializer=lambda error: {"message": "something went wrong"})
    with pytest.raises(RemoteError, match="something went wrong") as raised:
        pair.near.request("unknown")
    assert type(raised.value) is RemoteError


@pytest.mark.parametrize("payload", [None, "UnknownMethodError", ["type"], {"type": 7}, {"type": ["x"]}, {}])
def test_errors_of_foreign_shape_stay_what_they_are(ends, payload) -> None:
    pair = ends(error_serializer=lambda error: payload)
    with pytest.raises(RemoteError) as raised:
        pair.near.request("unknown")
    assert type(raised.value) is RemoteError


# Timeouts


def waits(stopped: list[Any]) -> Any:
    def handler(message: Message) -> None:
        try:
            Event().wait()
        except HandlerStopped as error:
            stopped.append(error.cause.code)
            raise

    return handler


def test_a_deadline_that_passes_stops_the_method(ends, clock) -> None:
    stopped: list[Any] = []
    pair = ends(method("slow", waits(stopped)))
    began = clock.now()
    with pytest.raises(StreamTimeout, match=r"2\.5"):
        pair.near.request("slow", timeout=2.5)
    assert clock.now() - began == 2.5
    clock.settle()
    assert stopped == [ResetCode.TIMEOUT]
    assert still_works(pair.near)


@pytest.mark.parametrize("call", ["request", "stream"])
def test_a_callers_own_timeout_comes_out_as_itself_and_stops_the_method(ends, clock, call) -> None:
    stopped: list[Any] = []
    pair = ends(method("slow", waits(stopped)))

    def wait() -> None:
        if call == "request":
            pair.near.request("slow")
        else:
            next(pair.near.stream("slow"))

    waiting = outcome(wait)
    clock.settle()
    own = gevent.Timeout()
    waiting.kill(own, block=False)
    clock.settle()
    assert waiting.value is own
    assert stopped == [ResetCode.CANCELLED]
    assert still_works(pair.near)


# Streams


def counts(message: Message) -> Any:
    yield from range(message.body)


def test_a_handler_that_yields_answers_as_a_stream(ends) -> None:
    pair = ends(method("count", counts))
    assert list(pair.near.stream("count", 1000)) == list(range(1000))
    assert list(pair.near.stream("count", 0)) == []
    with pair.near.stream("count", 3) as answers:
        assert iter(answers) is answers
        assert next(answers) == 0


def test_a_stream_of_a_plain_handler_is_its_one_answer(ends) -> None:
    pair = ends(method("one", lambda message: "one"))
    assert list(pair.near.stream("one")) == ["one"]


@pytest.mark.parametrize("n", [0, 2, 1000])
def test_a_request_takes_exactly_one_answer(ends, n) -> None:
    pair = ends(method("count", counts))
    assert pair.near.request("count", 1).body == 0
    with pytest.raises(ProtocolError):
        pair.near.request("count", n)
    assert still_works(pair.near)


class Endless:
    """Yields for ever and says how it ended."""

    def __init__(self) -> None:
        self.sent = 0
        self.begun = Event()
        self.ended = Event()

    def __call__(self, message: Message) -> Any:
        self.begun.set()
        try:
            while True:
                yield self.sent
                self.sent += 1
                gevent.sleep(0)
        finally:
            self.ended.set()


def leave_by_break(answers: Any, begun: Event) -> None:
    for _ in answers():
        break


def leave_by_exception(answers: Any, begun: Event) -> None:
    with pytest.raises(LookupError):
        for _ in answers():
            raise LookupError


def leave_by_with(answers: Any, begun: Event) -> None:
    with answers() as rows:
        next(rows)


def leave_by_close(answers: Any, begun: Event) -> None:
    rows = answers()
    next(rows)
    rows.close()
    rows.close()
    assert list(rows) == []


def leave_unread(answers: Any, begun: Event) -> None:
    rows = answers()
    assert begun.wait(5.0)
    assert rows is not None


@pytest.mark.parametrize("leave", [leave_by_break, leave_by_exception, leave_by_with, leave_by_close, leave_unread])
def test_leaving_the_iteration_stops_the_method(ends, clock, leave) -> None:
    endless = Endless()
    pair = ends(method("endless", endless))
    leave(lambda: pair.near.stream("endless"), endless.begun)
    assert endless.ended.wait(5.0)
    clock.settle()
    assert not pair.near.peer.streams
    assert not pair.far.peer.streams
    assert still_works(pair.near)


def test_a_generator_that_waits_is_stopped_where_it_waits(ends, clock) -> None:
    stopped: list[Any] = []

    def one_and_wait(message: Message) -> Any:
        yield 1
        try:
            Event().wait()
        except HandlerStopped as error:
            stopped.append(error.cause.code)
            raise

    pair = ends(method("one", one_and_wait))
    with pair.near.stream("one") as answers:
        assert next(answers) == 1
    clock.settle()
    assert stopped == [ResetCode.CANCELLED]


def test_a_generator_that_raises_ends_the_stream_by_an_error_behind_what_it_sent(ends) -> None:
    def fails(message: Message) -> Any:
        yield 1
        yield 2
        raise LookupError("kaputt")

    pair = ends(method("fails", fails))
    answers = pair.near.stream("fails")
    assert [next(answers), next(answers)] == [1, 2]
    with pytest.raises(RemoteError, match="kaputt"):
        next(answers)
    assert still_works(pair.near)


def test_a_generator_that_yields_what_cannot_be_sent(ends) -> None:
    closed: list[bool] = []

    def bad(message: Message) -> Any:
        try:
            yield 1
            yield object()
        finally:
            closed.append(True)

    pair = ends(method("bad", bad))
    answers = pair.near.stream("bad")
    assert next(answers) == 1
    with pytest.raises(BadAnswerError, match="answer of 'bad'"):
        next(answers)
    assert closed == [True]


def test_a_stream_is_not_complete_where_the_connection_ended(ends, clock) -> None:
    def one_and_wait(message: Message) -> Any:
        yield 1
        Event().wait()

    pair = ends(method("one", one_and_wait))
    answers = pair.near.stream("one")
    assert next(answers) == 1
    waiting = outcome(next, answers)
    clock.settle()
    pair.near.close(drain=0.0)
    assert isinstance(waiting.get(), Exception)
    assert not isinstance(waiting.value, StopIteration)


def test_a_slow_reader_slows_the_method_down(ends, clock) -> None:
    """What is under way is bounded, so a generator waits while nobody takes its values."""
    endless = Endless()
    pair = ends(
        method("endless", lambda message: ("x" * 10_000 for _ in endless(message))),
        send_buffer_bytes=100_000,
        receive_buffer_bytes=100_000,
        receive_pause_timeout=3600.0,
    )
    with clock.held():
        answers = pair.near.stream("endless")
        clock.settle()
        stuck_at = endless.sent
        clock.settle()
        assert endless.sent == stuck_at
        for _ in range(stuck_at):
            next(answers)
        clock.settle()
        assert endless.sent > stuck_at
        answers.close()


# Calls of another layer


def test_an_end_without_a_handler_of_any_name_refuses(ends) -> None:
    """A plain peer with no `on_stream` handler does not take the call; that is another thing than an unknown name."""
    pair = ends()
    pair.far.peer._handler = None
    with pytest.raises(StreamRefused):
        pair.near.request("add")


def test_a_stream_that_the_far_end_resets(ends) -> None:
    def resets(payload: Any, stream: Any) -> None:
        stream.reset(ResetCode.NO_ERROR, "no longer interested")

    pair = ends()
    pair.far.peer.on_stream(resets)
    with pytest.raises(StreamReset, match="no longer interested") as raised:
        pair.near.request("add")
    assert raised.value.code is ResetCode.NO_ERROR
    assert not isinstance(raised.value, StreamClosed)


@pytest.mark.parametrize("limit", [3])
def test_calls_beyond_the_others_limit_are_refused(ends, clock, limit) -> None:
    gate = Event()
    pair = ends(method("gate", lambda message: gate.wait()), max_concurrent_streams=limit)
    waiting = [outcome(pair.near.request, "gate") for _ in range(limit)]
    clock.settle()
    with pytest.raises(StreamRefused):
        pair.near.request("gate")
    gate.set()
    assert [call.get().body for call in waiting] == [True] * limit
