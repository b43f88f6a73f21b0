import json
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.request import display
from xapi_cli.request.display import displayed


def _shown(*chunks: bytes, colors: bool = False, content_type: str = "") -> tuple[str, list[str]]:
    notes: list[str] = []
    length = sum(map(len, chunks))
    return "".join(displayed(chunks, colors=colors, note=notes.append, content_type=content_type, length=length)), notes


def test_indented_json_preserves_numbers_and_order() -> None:
    body = (
        b'{"z":1.10,"a":1e400,"big":123456789012345678901234567890,"e":"\\u00e9\\/","a":[],"o":{},"l":[1,[true,null]]}'
    )

    assert _shown(body) == (
        """{
  "z": 1.10,
  "a": 1e400,
  "big": 123456789012345678901234567890,
  "e": "é/",
  "a": [],
  "o": {},
  "l": [
    1,
    [
      true,
      null
    ]
  ]
}
""",
        [],
    )


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", ""),
        (b"hello", "hello\n"),
        (b"hello\n", "hello\n"),
        (b"two\r\nlines\r\n", "two\nlines\n"),
        (b"\xef\xbb\xbf[1]", "[\n  1\n]\n"),
        (b"\xef\xbb\xbftext", "text\n"),
        (b" \n ", " \n \n"),
        (b'"x"', '"x"\n'),
        (b'{"a":', '{"a":\n'),
        (b'{"a":1}\n{"a":2}\n', '{"a":1}\n{"a":2}\n'),
        (b"[INFO] started\n", "[INFO] started\n"),
        (b"tab\there\n", "tab\there\n"),
        ("Français\u202f: déjà\u3000漢字 😀".encode(), "Français\u202f: déjà\u3000漢字 😀\n"),
        (b"[" * 5000, "[" * 5000 + "\n"),
        (b"[" * 150_000 + b"]" * 150_000, "[" * 150_000 + "]" * 150_000 + "\n"),  # deeper than any json module follows
    ],
)
def test_text_is_displayed(body: bytes, text: str) -> None:
    assert _shown(body) == (text, [])
    assert _shown(*(bytes([byte]) for byte in body)) == (text, [])


def test_control_characters_in_text_are_escaped() -> None:
    text = "\x1b]0;t\x07 \x08 \x7f \x9b1m \u202e \u2066 \u200b a\rb \ufeff \x0b \U000e0001"

    assert _shown(text.encode()) == (
        "\\x1b]0;t\\x07 \\x08 \\x7f \\x9b1m \\u202e \\u2066 \\u200b a\nb \\ufeff \\x0b \\U000e0001\n",
        [],
    )


def test_control_characters_inside_json_become_json_escapes() -> None:
    body = '{"k\u202ey": "\x7f\x9b\u2066\U000e0001 \u00a0"}'.encode()

    text, notes = _shown(body)

    assert text == '{\n  "k\\u202ey": "\\u007f\\u009b\\u2066\\udb40\\udc01 \u00a0"\n}\n'
    assert json.loads(text) == json.loads(body)
    assert notes == []


def test_names_strings_numbers_and_literals_have_different_colors() -> None:
    text, _ = _shown(b'{"a":["s",-1.5e3,true,null]}', colors=True)

    assert text == (
        "{\n  \x1b[1;34m\"a\"\x1b[0m: [\n    \x1b[32m\"s\"\x1b[0m,\n    \x1b[36m-1.5e3\x1b[0m,\n"
        "    \x1b[35mtrue\x1b[0m,\n    \x1b[35mnull\x1b[0m\n  ]\n}\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    "body", [b"\x89PNG\r\n\x1a\n\0\0", b"\xff\xfe", b'{"a":\0}', b"caf\xe9s", "utf-16".encode("utf-16"), b'["\xff"]']
)
def test_a_binary_body_is_replaced_by_a_note_with_its_size(body: bytes) -> None:
    assert _shown(body) == ("", [f"binary body, {len(body)} bytes, not shown; use -o FILE, or a pipe"])


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("charset", "text"),
    [
        ("iso-8859-1", "déjà vu\n¿"),
        ("ISO-8859-15", "10 €"),
        ('"windows-1252"', "“fine”"),
        ("Shift_JIS", "日本語 and ASCII"),
        ("gb18030", "中文\nab"),
        ("utf-16", "日本 and ASCII\nà"),
        ("utf-16le", "äscii"),
    ],
)
def test_text_in_a_declared_charset_is_shown_as_text(charset: str, text: str, size: int) -> None:
    body = text.encode(charset.strip('"'))

    shown, notes = _shown(
        *(body[start : start + size] for start in range(0, len(body), size)),
        content_type=f"text/plain; format=flowed; charset={charset}",
    )

    assert (shown, notes) == (f"{text}\n", [])


def test_json_and_control_characters_in_a_declared_charset() -> None:
    content_type = "text/html;charset=iso-8859-1"

    assert _shown(b'{"a":"\xe9"}', content_type=content_type) == ('{\n  "a": "é"\n}\n', [])
    assert _shown(b"\x9b1m\xe9", content_type=content_type) == ("\\x9b1mé\n", [])


@pytest.mark.parametrize(
    ("body", "charset"),
    [(b"\x89PNG\r\n\x1a\n\0\0", "iso-8859-1"), (b"\xff\xfe\0\0a", "utf-16le"), (b"\xdc\0\xff", "utf-16be"),
     (b"\xff\xff", "euc-kr")],
)  # fmt: skip
def test_binary_data_remains_binary_regardless_of_its_charset(body: bytes, charset: str) -> None:
    text, notes = _shown(body, content_type=f"text/plain; charset={charset}")

    assert (text, notes) == ("", [f"binary body, {len(body)} bytes, not shown; use -o FILE, or a pipe"])


@pytest.mark.parametrize(
    ("content_type", "first", "taken"),
    [("", b"\0" * 10, 1), ("text/plain", b"\xff\xfe", 1), ("image/png", b"", 0), ("Application/ZIP; a=b", b"", 0)],
)
def test_a_binary_body_is_refused_when_its_type_or_its_first_bytes_are_known(
    content_type: str, first: bytes, taken: int
) -> None:
    source, notes = _Source([first, *([b"x" * 65536] * 48)]), list[str]()

    assert list(displayed(source, colors=False, note=notes.append, content_type=content_type)) == []
    assert (source.taken, notes) == (taken, ["binary body, not shown; use -o FILE, or a pipe"])


class _Source:
    """Yield chunks, and count those that were consumed."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = list(chunks)
        self.taken = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.taken += 1
            yield chunk


@pytest.mark.parametrize(
    ("chunks", "taken"),
    [
        ([b"line one\n", b"line two\n"], 1),
        ([b"2026-11-21 started\n", b"more\n"], 1),
    ],
)
def test_text_is_displayed_as_it_arrives(chunks: list[bytes], taken: int) -> None:
    source = _Source(chunks)

    first = next(displayed(source, colors=False, note=pytest.fail))

    assert source.taken == taken
    assert first.startswith(chunks[0].decode())


def test_records_are_displayed_as_they_arrive() -> None:
    source = _Source([b'{"id":1}\n', b'{"id":2}\n'])

    first = next(displayed(source, colors=False, note=pytest.fail, content_type="application/x-ndjson"))

    assert (first, source.taken) == ('{"id":1}\n', 1)


def test_json_beyond_the_limit_is_displayed_as_it_arrives() -> None:
    chunks = [b"[", *([b"1," * 32768] * 70), b"1]"]
    source = _Source(chunks)

    notes: list[str] = []
    pieces = displayed(source, colors=True, note=notes.append)
    first = next(pieces)

    assert display.MAX_INDENTED < 65_536 * source.taken < display.MAX_INDENTED + 140_000
    assert (first + "".join(pieces)).encode() == b"".join(chunks) + b"\n"
    assert notes == ["JSON of more than 4.0 MiB is not indented; pipe it into jq"]


def test_indentation_of_deeply_nested_json_is_limited() -> None:
    body = b"[" * 900 + b"0," * 20_000 + b"0" + b"]" * 900

    text = "".join(displayed([body], colors=False, note=pytest.fail))

    assert json.loads(text) == json.loads(body)
    assert len(text) < 100 * len(body)


@given(st.binary(), st.integers(1, 5), st.sampled_from(["", "iso-8859-1", "windows-1252", "big5", "utf-16", "utf-32"]))
def test_no_body_sends_control_sequences_to_a_terminal(body: bytes, size: int, charset: str) -> None:
    text, notes = _shown(
        *(body[start : start + size] for start in range(0, len(body), size)), content_type=f"a/b; charset={charset}"
    )

    assert all(
        char.isprintable() or char in "\n\t\u00a0\u1680\u202f\u205f\u3000" or "\u2000" <= char <= "\u200a"
        for char in text
    )
    assert all(note.isprintable() for note in notes)
