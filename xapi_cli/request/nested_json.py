r"""Build one JSON value from fields whose names are paths, as in HTTPie.

a[b]=c    member b of a        a[]=c     element appended to a      \[  \]    a bracket in a name
a[0]=c    element 0 of a       [0]=c     element of the body        a[\0]=c   member "0" of a
"""

import re
from collections.abc import Iterable, Iterator

from xapi_cli.errors import UsageError
from xapi_cli.request.items import Field
from xapi_cli.request.json.syntax import encode_string
from xapi_cli.system.render import printable, shortened

_TOKEN = re.compile(r"[\[\]]|(?:\\[\\\[\]=:@]|[^\[\]])+", re.DOTALL)
_ESCAPED = re.compile(r"\\([\\\[\]=:@])")
_INDEX = re.compile(r"-?[0-9]+", re.ASCII)
_ESCAPED_INDEX = re.compile(r"\\(-?[0-9]+)", re.ASCII)
_LITERAL_BRACKET = "to use a bracket in a name, write \\[ or \\]"
_MAX_INDEX_LENGTH = 9  # digits
_MAX_EXPANDED = 20_000_000  # characters of JSON that later fields extend; those of each level count
_MAX_FILLED = 100_000  # elements without a value, in one body

Key = str | int | None  # the name of a member, the index of an element, or None to append one


class Part(Field):
    """A part of the JSON value of a field; a later field may replace it."""


Node = dict[str, "Node"] | list["Node"] | Field | None  # None: an element without a value, which is null


def build(fields: Iterable[Field]) -> Node:
    """Return the value that *fields* describe; its leaves are fields.

    Raises UsageError for an invalid name, a name that is given twice, or names that contradict each other.
    """
    tree = _Tree()
    for field in fields:
        tree.add(field)
    return tree.root


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
            yield "null" if current is None else current


def _children(node: dict[str, Node] | list[Node]) -> list[tuple[str, Node]]:
    """Return the children of *node*, each with the JSON text before it."""
    if isinstance(node, list):
        return [("", child) for child in node]
    return [("".join(encode_string([name])) + ": ", child) for name, child in node.items()]


def parse(name: str) -> list[Key]:
    """Return the path that *name* is, in the notation of an ITEM; raises UsageError."""
    tokens = [(match[0], match.start()) for match in _TOKEN.finditer(name)][::-1]
    end = [("", len(name))]
    keys: list[Key] = []
    if tokens[-1][0] not in "[]":
        keys.append(_text(tokens.pop()[0]))
    while tokens:
        _expect(name, tokens.pop(), "[")
        token = (tokens or end).pop()
        if token[0] == "]":
            keys.append(None)
            continue
        key = _key(name, token)
        if not keys and isinstance(key, str):
            raise _syntax_error(name, "an index or ]", token[1])
        keys.append(key)
        _expect(name, (tokens or end).pop(), "]")
    return keys


def _expect(name: str, token: tuple[str, int], bracket: str) -> None:
    if token[0] != bracket:
        raise _syntax_error(name, bracket, token[1])


def _key(name: str, token: tuple[str, int]) -> str | int:
    text, position = token
    if text in ("", "["):
        raise _syntax_error(name, "a name, an index or ]", position)
    if not _INDEX.fullmatch(text):
        return _text(text)
    if text.startswith("-"):
        raise _error(name, f"the index at character {position + 1} is negative", f"for a name, write \\{text}")
    if len(text) > _MAX_INDEX_LENGTH:
        raise _error(name, f"the index at character {position + 1} is too large", f"for a name, write \\{text}")
    return int(text)


def _text(text: str) -> str:
    escaped = _ESCAPED_INDEX.fullmatch(text)
    return escaped[1] if escaped else _ESCAPED.sub(r"\1", text)


def _syntax_error(name: str, expected: str, position: int) -> UsageError:
    where = "at the end" if position == len(name) else f"at character {position + 1}"
    return _error(name, f"expected {expected} {where}", _LITERAL_BRACKET)


def _error(name: str, what: str, hint: str | None = None) -> UsageError:
    return UsageError(f"invalid field name '{printable(name)}': {what}", hint=hint)


class _Tree:
    """A JSON value to which fields are added one by one."""

    def __init__(self) -> None:
        self.root: Node = None
        self._filled = self._expanded = 0

    def add(self, field: Field) -> None:
        keys: list[Key] = parse(field.written) if field.written else [field.name]
        node = self.root = _container(self.root, keys, 0, field)
        for position, key in enumerate(keys[:-1], 1):
            child = self._extended(_child(node, key), keys, position, field)
            self._put(node, key, child, field)
            node = child
        existing = _child(node, keys[-1])
        if existing is not None and not isinstance(existing, Part):
            name = printable(field.written or field.name)
            raise UsageError(f"the field {name} is given twice", hint=f"for a list, write {name}[]=…")
        self._put(node, keys[-1], field, field)

    def _extended(self, node: Node, keys: list[Key], position: int, field: Field) -> dict[str, Node] | list[Node]:
        self._expanded += len(_json_text(node))
        if self._expanded > _MAX_EXPANDED:
            raise _error(shortened(field.written, 40), "it extends JSON with too many levels", "send the body with -d")
        return _container(node, keys, position, field)

    def _put(self, node: dict[str, Node] | list[Node], key: Key, value: Node, field: Field) -> None:
        if isinstance(node, dict):
            node[str(key)] = value
        elif not isinstance(key, int):
            node.append(value)
        else:
            missing = max(0, key + 1 - len(node))
            self._filled += missing
            if self._filled > _MAX_FILLED:
                raise _error(field.written, f"the index would add more than {_MAX_FILLED:,} empty elements")
            node += [None] * missing
            node[key] = value


def _child(node: dict[str, Node] | list[Node], key: Key) -> Node:
    """Return what is at *key* of *node*, or None."""
    if isinstance(node, dict):
        return node.get(str(key))
    return node[key] if isinstance(key, int) and key < len(node) else None


def _container(node: Node, keys: list[Key], position: int, field: Field) -> dict[str, Node] | list[Node]:
    """Return *node*, the value at the first *position* of *keys*, as the object or array that the next key needs."""
    if node is None:
        return {} if isinstance(keys[position], str) else []
    container = _expanded(node, field)
    if isinstance(container, dict if isinstance(keys[position], str) else list):
        return container
    wanted = "an object" if isinstance(keys[position], str) else "an array"
    name, path = printable(field.written or field.name), printable(_path(keys[:position]))
    where = f"'{path}'" if path else "the body"
    raise UsageError(f"'{name}' requires {where} to be {wanted}, but it is {_kind(container)}", hint=_LITERAL_BRACKET)


def _expanded(node: Node, field: Field) -> Node:
    """Return *node* as an object or array of parts, if it is the text of one; a later *field* extends it."""
    text = _json_text(node)
    if not isinstance(node, Field) or not text.startswith(("[", "{")):
        return node
    from xapi_cli.request.json import spans

    span = spans.whole(text)
    if text.startswith("["):
        return [Part(node.name, text[slice(*element)], is_json=True) for element in spans.elements(text, span)]
    found = list(spans.members(text, span))
    expanded: dict[str, Node] = {name: Part(node.name, text[slice(*value)], is_json=True) for name, value in found}
    if len(expanded) < len(found):
        name = printable(field.written)
        raise UsageError(f"'{name}' extends an object with a duplicate name", hint="remove the duplicate")
    return expanded


def _kind(node: Node) -> str:
    if isinstance(node, dict | list):
        return "an object" if isinstance(node, dict) else "an array"
    if isinstance(node, Field) and node.path is not None:
        return "the content of a file"
    kinds = {"": "a string", '"': "a string", "t": "a boolean", "f": "a boolean", "n": "null"}
    return kinds.get(_json_text(node)[:1], "a number")


def _json_text(node: Node) -> str:
    """Return the JSON text of the field *node*, or an empty text for any other node."""
    return (node.text or "").strip() if isinstance(node, Field) and node.is_json else ""


def _path(keys: list[Key]) -> str:
    """Return the name that *keys* stand for."""
    texts = [f"[{'' if key is None else key}]" for key in keys]
    if keys and isinstance(keys[0], str):
        texts[0] = keys[0]
    return "".join(texts)
