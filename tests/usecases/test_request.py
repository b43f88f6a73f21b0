import pytest

from xapi_cli.errors import UsageError
from xapi_cli.runtime import Runtime
from xapi_cli.usecases.request import Request, RequestOptions

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
def test_wrong_words_are_found_when_a_request_is_made_and_not_when_it_runs(options: RequestOptions) -> None:
    with pytest.raises(UsageError):
        Request(Runtime(ENVIRON), options)


def test_what_may_be_a_secret_is_not_in_the_repr() -> None:
    options = RequestOptions(["/a", "b=canary"], query=["canary"], headers=["canary"], data="canary")

    assert "canary" not in repr(options)
