"""Every class that declares an interface keeps it, down to keyword-only parameters and defaults."""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import Any, Protocol

import pytest
from zope.interface import directlyProvides
from zope.interface.interface import InterfaceClass
from zope.interface.verify import verifyClass, verifyObject

from muxws_green.interfaces import contract
from tests.contract_objects import FACTORIES
from tests.contracts import differences, implementations, interfaces, modules

#: Of the package's own interfaces: a NamedTuple, say, declares one of zope's.
FOUND = [pair for module in modules() for pair in implementations(module) if pair[1] in interfaces()]

#: Interfaces that nothing in the package implements yet.
MISSING: set[str] = set()


def _name(value: Any) -> str:
    return value.getName() if isinstance(value, InterfaceClass) else value.__qualname__


every_implementation = pytest.mark.parametrize(
    "implementation,interface", [pytest.param(*pair, id="-".join(map(_name, pair))) for pair in FOUND]
)


@every_implementation
def test_an_implementation_has_the_methods_and_their_signatures(implementation: Any, interface: InterfaceClass) -> None:
    if isinstance(implementation, type):
        assert verifyClass(interface, implementation)
    assert differences(implementation, interface) == []


@every_implementation
def test_an_object_has_the_attributes_too(implementation: Any, interface: InterfaceClass) -> None:
    if isinstance(implementation, FunctionType):
        assert verifyObject(interface, implementation)
        return
    assert implementation in FACTORIES, "tests/contract_objects.py does not say how to make one"
    with FACTORIES[implementation]() as instance:
        assert type(instance) is implementation
        assert verifyObject(interface, instance)


def test_every_interface_is_implemented() -> None:
    assert {_name(i) for i in interfaces()} - {_name(i) for _, i in FOUND} <= MISSING


@contract
class ISample(Protocol):
    """Has one of each kind of parameter."""

    label: str

    def act(self, a: int, b: int = 2, *, c: int, d: int = 4) -> None:
        """Act."""

    def end(self, payload: object = ...) -> None:
        """End."""

    def find(self, **tags: object) -> None:
        """Find."""


@contract
class ICalled(Protocol):
    """Is called."""

    def __call__(self, error: BaseException) -> object:
        """Call it."""


class _Exact:
    def act(self, a, b=2, *, c, d=4): ...
    def end(self, payload=None): ...
    def find(self, **tags): ...


class _More(_Exact):
    def act(self, a, b=2, z=0, *, c, d=4, e=5): ...


class _Static(_Exact):
    @staticmethod
    def end(payload=None): ...


class _Without(_Exact):
    def act(self, a, b=2, *, c): ...


class _Renamed(_Exact):
    def act(self, a, bb=2, *, c, d=4): ...


class _OtherDefault(_Exact):
    def act(self, a, b=2, *, c, d=5): ...


class _NoDefault(_Exact):
    def act(self, a, b, *, c, d=4): ...


class _NoDefaultForAny(_Exact):
    def end(self, payload): ...


class _RequiresMore(_Exact):
    def act(self, a, b=2, *, c, d=4, e): ...


class _OtherKind(_Exact):
    def act(self, a, b=2, c=3, *, d=4): ...


class _OtherOrder(_Exact):
    def act(self, b, a=2, *, c, d=4): ...


class _FewerTags(_Exact):
    def find(self, tags): ...


class _Missing:
    def act(self, a, b=2, *, c, d=4): ...
    def end(self, payload=None): ...


@pytest.mark.parametrize("cls", [_Exact, _More, _Static])
def test_a_signature_that_keeps_the_contract(cls: type) -> None:
    assert differences(cls, ISample) == []


@pytest.mark.parametrize(
    "cls,complaint",
    [
        (_Without, "act: has no parameter 'd'"),
        (_Renamed, "act: has no parameter 'b'"),
        (_OtherDefault, "act: 'd' has another default"),
        (_NoDefault, "act: 'b' has another default"),
        (_NoDefaultForAny, "end: 'payload' has another default"),
        (_RequiresMore, "act: requires 'e'"),
        (_OtherKind, "act: 'c' is positional or keyword, not keyword-only"),
        (_OtherOrder, "act: takes positional arguments in the order ['b', 'a'], not ['a', 'b']"),
        (_FewerTags, "find: 'tags' is positional or keyword, not variadic keyword"),
        (_Missing, "find: missing"),
    ],
)
def test_a_signature_that_breaks_it(cls: type, complaint: str) -> None:
    assert any(text.startswith(complaint) for text in differences(cls, ISample))


def test_a_function_keeps_a_contract_or_breaks_it() -> None:
    def right(error): ...

    def wrong(exception): ...

    for function in (right, wrong):
        directlyProvides(function, ICalled)
    assert verifyObject(ICalled, right)
    assert differences(right, ICalled) == []
    assert differences(wrong, ICalled)[0] == "__call__: has no parameter 'error'"


def test_implementations_are_found() -> None:
    module = ModuleType("sample")
    source = """
from zope.interface import directlyProvides, implementer
from tests.test_contracts import ICalled, ISample

@implementer(ISample)
class Keeps: ...

class Inherits(Keeps): ...

class Other: ...

def called(error): ...

directlyProvides(called, ICalled)
"""
    exec(source, vars(module))
    assert [(_name(found), _name(interface)) for found, interface in implementations(module)] == [
        ("Keeps", "ISample"),
        ("Inherits", "ISample"),
        ("called", "ICalled"),
    ]
