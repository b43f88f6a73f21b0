"""Each ITEM of `xapi request` has one meaning, or is rejected without being quoted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.errors import UsageError
from xapi_cli.request.items import Field, Items, Upload, is_item, parse

VALUES = st.text(st.characters(exclude_categories=["Cs"]))

MEANT = [
    ("a==1", Items(query=[("a", "1")])),
    ("a==", Items(query=[("a", "")])),
    ("a===", Items(query=[("a", "=")])),
    ("a==https://x.test/?y", Items(query=[("a", "https://x.test/?y")])),
    ("Accept:text/plain", Items(headers=[("Accept", "text/plain")])),
    ("Accept: \ttext/plain\t ", Items(headers=[("Accept", "text/plain")])),
    ("Accept:", Items(headers=[("Accept", None)])),
    ("X:a=b", Items(headers=[("X", "a=b")])),
    ("X: @a", Items(headers=[("X", "@a")])),
    ("X::a", Items(headers=[("X", ":a")])),
    ("X:a\tb é", Items(headers=[("X", "a\tb é")])),
    ("Host:other.test", Items(headers=[("Host", "other.test")])),
    ("a=", Items(parts=[Field("a", "")])),
    ("a=b", Items(parts=[Field("a", "b")])),
    ("a=:b", Items(parts=[Field("a", ":b")])),
    ("a=b@c", Items(parts=[Field("a", "b@c")])),
    ("a=\\@b\\=", Items(parts=[Field("a", "\\@b\\=")])),
    ("a=/b?c", Items(parts=[Field("a", "/b?c")])),
    ("-a=b", Items(parts=[Field("-a", "b")])),
    ("a:=1", Items(parts=[Field("a", "1", is_json=True)])),
    ("a:=1e400", Items(parts=[Field("a", "1e400", is_json=True)])),
    ('a:="@b"', Items(parts=[Field("a", '"@b"', is_json=True)])),
    ('a:={"b": [null, "https://x"]}', Items(parts=[Field("a", '{"b": [null, "https://x"]}', is_json=True)])),
    ("a:= true ", Items(parts=[Field("a", " true ", is_json=True)])),
    ("a:=@b.json", Items(parts=[Field("a", path="b.json", is_json=True)])),
    ("a=@C:/b.txt", Items(parts=[Field("a", path="C:/b.txt")])),
    ("a@b.png", Items(parts=[Upload("a", "b.png")])),
    ("a@-", Items(parts=[Upload("a", "-")])),
    ("a@@b", Items(parts=[Upload("a", "@b")])),
    ("a@b.bin;type=image/png", Items(parts=[Upload("a", "b.bin", "image/png")])),
    ("a@b;type=", Items(parts=[Upload("a", "b;type=")])),
    ("a@b;type=x\r\ny/z", Items(parts=[Upload("a", "b;type=x\r\ny/z")])),
    ("a\\=b=c", Items(parts=[Field("a=b", "c")])),
    ("me\\@x.test=c", Items(parts=[Field("me@x.test", "c")])),
    ("a\\:=c", Items(parts=[Field("a:", "c")])),
    ("a\\\\=c", Items(parts=[Field("a\\", "c")])),
    ("a\\b=c", Items(parts=[Field("a\\b", "c")])),
    ("\\=a=c", Items(parts=[Field("=a", "c")])),
    ("é.漢[0]=c", Items(parts=[Field("é.漢[0]", "c")])),
    ("a[]=@b", Items(parts=[Field("a[]", path="b")])),
    ("a\n=b\n", Items(parts=[Field("a\n", "b\n")])),
]

ESCAPED = r"(\x1b\u202e)"
NO_JSON = "argument 2 (a) has a value that is not valid JSON"
NO_ITEM = [
    "",
    "a",
    "CAN",
    "/a=b",
    "//a=b",
    "https://me@x.test/a=b",
    "x://a=b",
    "C:/Program Files/Git/a",
    "c:\\a=b",
    "a/b=c",
    "a/1:archive",
    "a?b=c",
    "a[0]/b=c",
    "a[/b=c",
    "a[b][c/d]@e",
    "?a=b",
    "=a",
    ":a",
    "@a",
    "a\\=b",
    "a\\:b\\@c",
    "a\\",
]


@pytest.mark.parametrize(("word", "items"), MEANT)
def test_an_item_is_parsed(word: str, items: Items) -> None:
    assert is_item(word)
    assert parse([word]) == items


@pytest.mark.parametrize("word", NO_ITEM)
def test_an_unexpected_argument_is_reported_by_position_and_not_quoted(word: str) -> None:
    assert not is_item(word)
    with pytest.raises(UsageError) as caught:
        parse(["a=b", word], before=2)

    assert caught.value.message == "argument 4 is not an ITEM (not shown: it may be a secret)"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("a:=CAN", f"{NO_JSON}: expecting value at character 1"),
        ("a:=", f"{NO_JSON}: it is empty"),
        ("a:=NaN", f"{NO_JSON}: NaN is not a JSON value"),
        ("a:=[1,", f"{NO_JSON}: expecting value at character 4"),
        ("a:=1 2", f"{NO_JSON}: extra data at character 3"),
        ("\x1b\u202e:=", f"{NO_JSON.replace('(a)', ESCAPED)}: it is empty"),
        ("a=@", "argument 2 (a) has no file name after its @"),
        ("a@", "argument 2 (a) has no file name after its @"),
        ("a==@", "argument 2 (a) has no file name after its @"),
        ("a b:CAN", "argument 2 is a header with an invalid name"),
        ("é:CAN", "argument 2 is a header with an invalid name"),
        ("a\\:b:CAN", "argument 2 is a header with an invalid name"),
        ("X:CAN\r\nY: z", "the header X has a control character (U+000D) in its value"),
        ("X:CAN\x00", "the header X has a control character (U+0000) in its value"),
        ("X:CAN\x1b", "the header X has a control character (U+001B) in its value"),
        ("X:CAN\x85", "the header X has a control character (U+0085) in its value"),
        ("X:CAN\ud800", "the value of the header X contains an unpaired surrogate"),
        ("Host:", "the header Host cannot be removed"),
        ("Content-Length:5", "the header Content-Length is set by xapi"),
        ("Transfer-Encoding:chunked", "the header Transfer-Encoding is set by xapi"),
        ("Connection:close", "the header Connection is set by xapi"),
        ("Keep-Alive:5", "the header Keep-Alive is set by xapi"),
        ("Upgrade:h2c", "the header Upgrade is set by xapi"),
        ("TE:trailers", "the header TE is set by xapi"),
        ("Trailer:x", "the header Trailer is set by xapi"),
        ("Proxy-Authorization:CAN", "the header Proxy-Authorization is set by xapi"),
        ("PROXY-CONNECTION:x", "the header PROXY-CONNECTION is set by xapi"),
    ],
)  # fmt: skip
def test_an_invalid_item_is_reported_by_name_without_its_value(word: str, message: str) -> None:
    assert is_item(word)
    with pytest.raises(UsageError) as caught:
        parse([word])

    assert caught.value.message == message
    assert "CAN" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_items_of_a_kind_keep_their_order_and_flags_without_a_place_come_first() -> None:
    args = ["b==2", "X:1", "a==1", "z=1", "X:2", "f@g", "y:=2", "b==3", "h@i"]

    assert parse(args, headers=["X: 0", "Y;"]) == Items(
        query=[("b", "2"), ("a", "1"), ("b", "3")],
        headers=[("X", "0"), ("Y", ""), ("X", "1"), ("X", "2")],
        parts=[Field("z", "1"), Upload("f", "g"), Field("y", "2", is_json=True), Upload("h", "i")],
    )


@pytest.mark.parametrize(
    ("args", "flags", "headers"),
    [
        (["X:1", "X:"], [], [("X", None)]),
        (["X:1", "y:2", "x:2", "X:", "Z:3"], [], [("y", "2"), ("X", None), ("Z", "3")]),
        (["X:1", "X:", "X:2"], [], [("X", "2")]),
        (["X:", "x:1", "X:2"], [], [("x", "1"), ("X", "2")]),
        (["X:"], ["X: 1", "Y;"], [("Y", ""), ("X", None)]),
        ([], ["X: 1", "X:"], [("X", None)]),
        ([], ["X: 1", "X;"], [("X", "1"), ("X", "")]),
    ],
)
def test_a_header_without_a_value_removes_what_was_set(
    args: list[str], flags: list[str], headers: list[tuple[str, str | None]]
) -> None:
    assert parse(args, headers=flags) == Items(headers=headers)


def test_values_of_headers_and_query_parameters_come_from_files() -> None:
    texts = {"a": "one", "b": " two ", "-": "", "/c d": "x=y"}
    args = ["X:@a", "q==@b", "Empty:@-", "q==@/c d", "X:@b"]

    assert parse(args, read=texts.__getitem__) == Items(
        query=[("q", " two "), ("q", "x=y")],
        headers=[("X", "one"), ("Empty", ""), ("X", "two")],
        files=["a", "b", "-", "/c d", "b"],
    )


@pytest.mark.parametrize("text", ["CAN\nCAN", "CAN\r\n x", "CAN\x00", "\ud800"])
def test_a_file_with_an_invalid_header_value_is_rejected_and_not_quoted(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(["X:@a"], read=lambda path: text)

    assert "the header X" in caught.value.message
    assert "CAN" not in str(caught.value)


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("@CAN", "for a body from a file, use -d @FILE"),
        ("=CAN", "give it a name, or check for an unset shell variable"),
        ("Can;CAN", "write name=value, name:=JSON, name==value, Name:value or name@file"),
    ],
)
def test_the_error_names_what_to_write_instead(word: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse([word])

    assert caught.value.hint == hint


@given(st.text(st.sampled_from("ab=:@\\/? {}1\n\r\té\ud800\udcff"), max_size=12))
def test_any_argument_parses_or_is_a_usage_error(word: str) -> None:
    items = _parsed(word)
    if items is None:
        return

    assert is_item(word)
    assert len(items.query) + len(items.headers) + len(items.fields) + len(items.uploads) == 1
    assert len(items.parts) == len(items.fields) + len(items.uploads)


def _parsed(word: str) -> Items | None:
    """Return the parsed *word*, or None if it is rejected with the expected error."""
    try:
        return parse([word], read=lambda path: "value")
    except UsageError as error:
        return None if str(error).isprintable() else pytest.fail(f"an error with odd characters: {error!r}")
