"""Read YAML as plain data, from the events of PyYAML, in bounded time and memory.

The loaders of PyYAML recurse, and grow merge keys (`<<`) exponentially. Here, each tag is ignored, an alias is the same
object as its anchor, and a key is text as it was written: `200:`, `no:` and dates are not converted.
"""

from typing import Any

import yaml

_MAX_DEPTH = 200  # levels; the parser takes quadratic time in the depth of flow collections
_MAX_MERGED = 100_000  # members that merge keys add, in total
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the second one, without libyaml, is ten times slower


class InvalidYAML(ValueError):
    """The text is not valid YAML, or exceeds a limit; the message states the reason and the position."""


def read(text: str, *, max_values: int) -> object:
    """Return the first document in *text*; raise InvalidYAML if it is not valid or has more than *max_values* values.

    Scalars are text, booleans or None.
    """
    builder = _Builder(max_values)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.add(event)
            if isinstance(event, yaml.DocumentEndEvent):
                break
    except yaml.MarkedYAMLError as error:
        raise InvalidYAML(f"{error.problem or 'an error'}{_position(error.problem_mark)}") from None
    except yaml.YAMLError as error:
        raise InvalidYAML(" ".join(str(error).split())) from None
    return builder.document


class _Builder:
    """Builds values from events, without recursion."""

    def __init__(self, max_values: int) -> None:
        self.document: object = None
        self._left, self._merged = max_values, 0
        self._anchors: dict[str, object] = {}
        self._open: list[_Collection] = []

    def add(self, event: Any) -> None:
        """Process the next event; raise InvalidYAML if a limit is exceeded."""
        match event:
            case yaml.ScalarEvent():
                self._append(_scalar(event), event, text=event.value)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._begin(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                ended = self._open.pop()
                self._append(ended.value, ended.event)
            case yaml.AliasEvent():
                if event.anchor not in self._anchors:
                    raise InvalidYAML(f"an alias without an anchor before it{_position(event.start_mark)}")
                self._append(self._anchors[event.anchor], event)

    def _begin(self, event: Any) -> None:
        self._left -= 1
        if len(self._open) == _MAX_DEPTH or self._left < 0:
            limit = f"more than {_MAX_DEPTH} levels" if self._left >= 0 else "too many values"
            raise InvalidYAML(f"{limit}{_position(event.start_mark)}")
        self._open.append(_Collection(event, {} if isinstance(event, yaml.MappingStartEvent) else []))

    def _append(self, value: object, event: Any, *, text: str | None = None) -> None:
        """Add *value* to the collection that is open; *text* is that of a scalar, which may be a key."""
        if event.anchor is not None and not isinstance(event, yaml.AliasEvent):
            self._anchors[event.anchor] = value  # only now, so that nothing contains itself
        if not self._open:
            self.document = value
            return
        parent = self._open[-1]
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif parent.key is None:
            key = value if isinstance(event, yaml.AliasEvent) and isinstance(value, str) else text
            if key is None:
                raise InvalidYAML(f"a key that is not text{_position(event.start_mark)}")
            parent.key = key
        else:
            self._set(parent.value, parent.key, value, event)
            parent.key = None

    def _set(self, members: dict[str, object], key: str, value: object, event: Any) -> None:
        if key != "<<":
            members[key] = value
            return
        for merged in value if isinstance(value, list) else [value]:
            if not isinstance(merged, dict):
                raise InvalidYAML(f"a merge key without a mapping{_position(event.start_mark)}")
            self._merged += len(merged) + 1
            if self._merged > _MAX_MERGED:
                raise InvalidYAML(f"merge keys add too many members{_position(event.start_mark)}")
            for name, member in merged.items():
                members.setdefault(name, member)


class _Collection:
    """A mapping or sequence that has not ended; *key* is the one whose value comes next."""

    def __init__(self, event: Any, value: "dict[str, object] | list[object]") -> None:
        self.event, self.value = event, value
        self.key: str | None = None


def _scalar(event: Any) -> object:
    """Return null and booleans as such, and everything else as text."""
    text: str = event.value
    if event.style or not event.implicit[0]:  # quoted, a block, or with a tag
        return text
    return None if text in _NULLS else _BOOLEANS.get(text, text)


def _position(mark: Any) -> str:
    return f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
