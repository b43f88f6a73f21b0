import pytest

from xapi_cli.context import Context
from xapi_cli.errors import UsageError
from xapi_cli.request.options import RequestOptions
from xapi_cli.request.plan import Plan

ENVIRON = {"XAPI_BASE_URL": "https://api.test", "XAPI_TOKEN": "canary", "XAPI_CONFIG_DIR": "/nonexistent"}


@pytest.mark.parametrize(
    "options",
    [
        RequestOptions([]),
        RequestOptions(["/a", "stray"]),
        RequestOptions(["//other.test/"]),
        RequestOptions(["/a", "b=1"], data="x"),
        RequestOptions(["/a"], headers=["no colon"]),
        RequestOptions(["/a"], output="x", meta="x"),
    ],
)
def test_invalid_arguments_are_reported_before_the_request_runs(options: RequestOptions) -> None:
    with pytest.raises(UsageError):
        Plan(Context(ENVIRON), options)


def test_the_repr_contains_no_secret() -> None:
    options = RequestOptions(["/a", "b=canary"], headers=["canary"], data="canary")

    assert "canary" not in repr(options)
