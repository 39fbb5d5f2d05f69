"""What finds the implementations of the package's interfaces, and what compares their signatures with the contract's.

zope compares the positional parameters of a method. Here the whole signature counts: an implementation may have further
optional parameters; it may not lack one, call it otherwise, or give it another default.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from zope.interface import implementedBy, providedBy
from zope.interface.interface import InterfaceClass

import muxws_green
import muxws_green.interfaces
from muxws_green.interfaces import SIGNATURE_TAG

#: Stands in an interface for "some default, which is the implementation's own affair".
ANY_DEFAULT = ...

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def interfaces(module: ModuleType = muxws_green.interfaces) -> list[InterfaceClass]:
    """The interfaces that a module defines."""
    return [value for value in vars(module).values() if isinstance(value, InterfaceClass)]


def modules() -> Iterator[ModuleType]:
    """Every module of the package. `__main__` is a command and nobody imports it."""
    for info in pkgutil.walk_packages(muxws_green.__path__, "muxws_green."):
        if not info.name.endswith(".__main__"):
            yield importlib.import_module(info.name)


def implementations(module: ModuleType) -> list[tuple[Any, InterfaceClass]]:
    """The classes and functions that a module defines and that declare an interface, with each that they declare."""
    found: list[tuple[Any, InterfaceClass]] = []
    for value in vars(module).values():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, type):
            found += [(value, interface) for interface in implementedBy(value)]
        elif isinstance(value, FunctionType):
            found += [(value, interface) for interface in providedBy(value)]
    return found


def differences(implementation: Any, interface: Any) -> list[str]:
    """Where the methods of a class, or a function, have other signatures than the interface says."""
    found = []
    for name, description in interface.namesAndDescriptions(all=True):
        contract = description.queryTaggedValue(SIGNATURE_TAG)
        if contract is None:
            continue
        wanted = list(contract.parameters.values())[1:]
        if isinstance(implementation, FunctionType):
            have = list(inspect.signature(implementation).parameters.values())
        else:
            method = inspect.getattr_static(implementation, name, None)
            if method is None:
                found.append(f"{name}: missing")
                continue
            have = list(inspect.signature(getattr(implementation, name)).parameters.values())
            # A plain function takes `self`; a static or class method does not show its first argument here.
            have = have[0 if isinstance(method, staticmethod | classmethod) else 1 :]
        found += [f"{name}: {text}" for text in _compare(wanted, have)]
    return found


def _compare(wanted: list[inspect.Parameter], have: list[inspect.Parameter]) -> Iterator[str]:
    by_name = {parameter.name: parameter for parameter in have}
    for parameter in wanted:
        own = by_name.pop(parameter.name, None)
        if own is None:
            yield f"has no parameter {parameter.name!r}"
        elif own.kind != parameter.kind:
            yield f"{own.name!r} is {own.kind.description}, not {parameter.kind.description}"
        elif own.default != parameter.default and (
            parameter.default is not ANY_DEFAULT or own.default is inspect.Parameter.empty
        ):
            yield f"{own.name!r} has another default: {own} instead of {parameter}"
    for own in by_name.values():
        if own.default is inspect.Parameter.empty and own.kind not in _VARIADIC:
            yield f"requires {own.name!r}"
    if _positional(have)[: len(_positional(wanted))] != _positional(wanted):
        yield f"takes positional arguments in the order {_positional(have)}, not {_positional(wanted)}"


def _positional(parameters: list[inspect.Parameter]) -> list[str]:
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
