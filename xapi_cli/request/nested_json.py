"""Build one JSON object from fields whose names may be paths: `a[b]=c` is member b of a, `a[]=c` an element of a."""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from xapi_cli.errors import UsageError
from xapi_cli.request.items import Field
from xapi_cli.system.render import printable

_PATH = re.compile(r"([^\[\]\\]+)((?:\[[^\[\]\\]*\])+)")
_KEY = re.compile(r"\[(.*?)\]", re.DOTALL)

Node = dict[str, "Node"] | list["Node"] | Field


def build(fields: Iterable[Field]) -> dict[str, Node]:
    """Return the object that *fields* describe; its leaves are fields.

    Raises UsageError for an invalid name, a name that is given twice, or names that contradict each other.
    """
    root: dict[str, Node] = {}
    for field in fields:
        _add(root, field)
    return root


def _add(root: dict[str, Node], field: Field) -> None:
    node: Node = root
    keys = path(field.name)
    for key, following in pairwise(keys):
        node = _put(node, key, [] if following is None else {}, field)
    if _put(node, keys[-1], field, field) is not field:
        name = printable(field.name)
        raise UsageError(f"the field {name} is given twice", hint=f"for a list, write {name}[]=…")


def _put(node: Node, key: str | None, child: Node, field: Field) -> Node:
    """Return what is at *key* of *node*: *child*, unless there is something; the key None appends it."""
    if key is None and isinstance(node, list):
        node.append(child)
        return child
    if key is not None and isinstance(node, dict):
        return node.setdefault(key, child)
    raise UsageError(f"the field {printable(field.name)} contradicts a field before it", hint="rename one of them")


def path(name: str) -> list[str | None]:
    """Return the keys in *name*, in the notation of an ITEM, None for an element; raises UsageError."""
    if "[" not in name and "]" not in name:
        return [name]
    found = _PATH.fullmatch(name)
    if found is None:
        hint = "write name[key]=… or name[]=…, or the body with -d"
        raise UsageError(f"invalid field name '{printable(name)}'", hint=hint)
    keys = _KEY.findall(found[2])
    if any(key.isdecimal() for key in keys):
        hint = f"append with {printable(found[1])}[]=…, or write the list as JSON, {printable(found[1])}:='[…]'"
        raise UsageError(f"the field name '{printable(name)}' has an index, which is not supported", hint=hint)
    return [found[1], *(key or None for key in keys)]


def pieces(node: Node) -> Iterator[str | Field]:
    """Yield the JSON text of *node* in pieces; leaves are yielded as they are."""
    pending: list[Node | str] = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, dict | list):
            opening, closing = "{}" if isinstance(current, dict) else "[]"
            pending.append(closing)
            for number, (head, child) in enumerate(reversed(_children(current)), 1):
                pending += [child, f", {head}" if number < len(current) else head]
            pending.append(opening)
        else:
            yield current


def _children(node: dict[str, Node] | list[Node]) -> list[tuple[str, Node]]:
    """Return the children of *node*, each with the JSON text before it."""
    if isinstance(node, list):
        return [("", child) for child in node]
    return [(json.dumps(name, ensure_ascii=False) + ": ", child) for name, child in node.items()]
