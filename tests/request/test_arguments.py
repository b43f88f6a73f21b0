"""METHOD, PATH and -H of `xapi request`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.errors import UsageError
from xapi_cli.request.items import header, method, split_arguments


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["/me"], (None, "/me", [])),
        (["me", "a=b"], (None, "me", ["a=b"])),
        (["get", "/me"], ("GET", "/me", [])),
        (["Patch", "/me", "a=b", "X:"], ("PATCH", "/me", ["a=b", "X:"])),
        (["purge", "/me"], ("PURGE", "/me", [])),
        (["me", "/a=b"], ("ME", "/a=b", [])),
        (["me", "https://x.test/?a=b"], ("ME", "https://x.test/?a=b", [])),
        (["me", "C:/Program Files/Git/me"], ("ME", "C:/Program Files/Git/me", [])),
        (["/me", "a=b", "c"], (None, "/me", ["a=b", "c"])),
        (["m-search", "/me"], (None, "m-search", ["/me"])),
        (["été", "/me"], (None, "été", ["/me"])),
        (["post", "a=b"], (None, "post", ["a=b"])),
    ],
)
def test_arguments_are_split_into_method_path_and_items(
    args: list[str], expected: tuple[str | None, str, list[str]]
) -> None:
    assert split_arguments(args) == expected


@pytest.mark.parametrize("args", [["GET"], ["POST", "a=b"], ["DELETE", "users:batch"]])
def test_a_method_without_a_path_is_a_usage_error(args: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        split_arguments(args)

    assert caught.value.message == f"missing PATH after {args[0]}"


def test_without_arguments_the_path_is_missing() -> None:
    with pytest.raises(UsageError, match="missing PATH; write for example: xapi request"):
        split_arguments([])


@pytest.mark.parametrize("text", ["CONNECT", "connect", "trace", "", "GET ", "G3T", "M-SEARCH", "GET\r\nX", "É", "ﬀ"])
def test_an_invalid_or_dangerous_method_is_rejected(text: str) -> None:
    with pytest.raises(UsageError):
        method(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("X: a", ("X", "a")),
        ("X:a", ("X", "a")),
        ("X: a:b", ("X", "a:b")),
        ("X:", ("X", None)),
        ("X;", ("X", "")),
        ("X: \udcff", ("X", "\udcff")),
        ("!#$%&'*+-.^_`|~: 1", ("!#$%&'*+-.^_`|~", "1")),
    ],
)
def test_a_header_flag_is_parsed(text: str, expected: tuple[str, str | None]) -> None:
    assert header(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "CAN", ":CAN", ": CAN", "X : CAN", " X: CAN", "X\t: CAN", "(X): CAN", ";", "Content-Length;", "X: CAN\n"],
)
def test_an_invalid_header_flag_is_rejected_and_not_quoted(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        header(text)

    assert "CAN" not in str(caught.value)


@given(st.lists(st.text(st.sampled_from("GETa=:@/?"), max_size=6), max_size=5))
def test_no_argument_is_lost(args: list[str]) -> None:
    try:
        given_method, path, items = split_arguments(args)
    except UsageError:
        return

    assert [*([args[0]] if given_method else []), path, *items] == args
    assert given_method is None or given_method == args[0].upper()
