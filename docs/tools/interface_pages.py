"""A Sphinx extension that shows the contracts of `muxws_green.interfaces`.

`.. autointerface:: muxws_green.interfaces.ICodec` becomes the interface as zope has it: its docstring, its attributes
with their types and the comments above them, its methods with their whole signatures and docstrings. `autodoc` cannot
do it, since at run time the name is no class.
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import TYPE_CHECKING, Any

from sphinx.ext.napoleon import GoogleDocstring
from sphinx.util.docutils import SphinxDirective
from zope.interface.interface import InterfaceClass, Method

from muxws_green.interfaces import SIGNATURE_TAG

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

#: The comments of one attribute, `#:`, and the attribute.
_ATTRIBUTE = re.compile(r"(?P<comments>(?:^    #: .*\n)+)(?P<names>(?:^    \w+: .*\n)+)", re.MULTILINE)


def interfaces(module: Any) -> dict[str, InterfaceClass]:
    """The interfaces that a module defines, in its order."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, InterfaceClass) and value.__module__ == module.__name__
    }


def describe(interface: InterfaceClass) -> list[str]:
    """One interface in reStructuredText, in the words of Sphinx's Python domain."""
    lines = [f".. py:class:: {interface.__name__}", f"   :module: {interface.__module__}", ""]
    lines += _indented(interface.__doc__, 1)
    comments = _comments(interface)
    for name, member in interface.namesAndDescriptions(all=True):
        if isinstance(member, Method):
            signature = member.getTaggedValue(SIGNATURE_TAG)
            shown = signature.replace(parameters=list(signature.parameters.values())[1:])
            lines += [f"   .. py:method:: {name}{_without_quotes(shown)}", ""]
            lines += _indented(member.__doc__, 2)
        else:
            lines += [f"   .. py:attribute:: {name}", f"      :type: {member.__doc__}", ""]
            lines += _indented(comments.get(name, ""), 2)
    return lines


def _indented(text: str | None, depth: int) -> list[str]:
    return [*("   " * depth + line for line in GoogleDocstring(inspect.cleandoc(text or "")).lines()), ""]


def _without_quotes(signature: inspect.Signature) -> str:
    # `from __future__ import annotations` leaves annotations as text.
    return re.sub(r"'([^']*)'", r"\1", str(signature))


def _comments(interface: InterfaceClass) -> dict[str, str]:
    """What is said above the attributes. Comments are in no object, so they are read from the source."""
    source = inspect.getsource(importlib.import_module(interface.__module__))
    start = source.index(f"class {interface.__name__}(")
    body = re.split(r"\n(?=\S)", source[start:], maxsplit=1)[0]
    found = {}
    for match in _ATTRIBUTE.finditer(body):
        text = " ".join(line.strip().removeprefix("#: ") for line in match["comments"].splitlines())
        for line in match["names"].splitlines():
            found[line.strip().partition(":")[0]] = text
    return found


class AutoInterface(SphinxDirective):
    """Shows one interface; the argument is its whole name."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module, _, name = self.arguments[0].rpartition(".")
        interface = interfaces(importlib.import_module(module)).get(name)
        if interface is None:
            raise self.error(f"{self.arguments[0]} is no interface")
        return self.parse_text_to_nodes("\n".join(describe(interface)))


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("autointerface", AutoInterface)
    return {"parallel_read_safe": True}
