"""Any arguments of `xapi request` are a request to the origin of the base URL, or one usage error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.mutations import mutated
from xapi_cli.context import Context
from xapi_cli.errors import UsageError
from xapi_cli.http import urls
from xapi_cli.request.options import RequestOptions
from xapi_cli.request.plan import Plan
from xapi_cli.system.render import printable

BASE = "https://api.test/v1"
ENVIRON = {"XAPI_BASE_URL": BASE, "XAPI_TOKEN": "canary-of-a-token", "XAPI_CONFIG_DIR": "/nonexistent"}
EXAMPLES = [
    b"GET", b"post", b"/x-api/me", b"https://api.test/v1/a?b=c", b"//other.test/", b"https://api.test@other.test/",
    b"a=b", b"a==b", b"a:=[1, 2]", b"X-Name:value", b"Authorization:", b"a\\=b=c", b"f=@file", b"--", b"-d",
    b"f@file;type=text/plain", b"\xc3\xa9=\xe6\xbc\xa2", b"C:/Program Files/x", b"/../../etc", b"\\\\other.test",
    b"http:/x", b"/%2e%2e/x",
]  # fmt: skip
WORDS = st.lists(
    (st.sampled_from(EXAMPLES) | mutated(EXAMPLES, more=2)).map(lambda data: data.decode("utf-8", "surrogateescape")),
    max_size=5,
)


@pytest.fixture(scope="module")
def context() -> Context:
    """One object for all examples, each of which has its own descriptors."""
    return Context(ENVIRON)


@given(WORDS, WORDS, st.none() | st.just("text"), st.booleans())
def test_any_arguments_lead_only_to_the_api(
    context: Context, args: list[str], headers: list[str], data: str | None, form: bool
) -> None:
    try:
        plan = Plan(context, RequestOptions(args, headers=headers, data=data, form=form))
    except UsageError as error:
        assert str(error) == printable(str(error))
        assert "canary" not in str(error)
    else:
        assert urls.same_origin(plan.url, BASE)
        assert plan.url.isascii()
