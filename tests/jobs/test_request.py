import pytest

from xapi_cli.errors import UsageError
from xapi_cli.jobs.request import Request, Wishes
from xapi_cli.runtime import Runtime

ENVIRON = {"XAPI_BASE_URL": "https://api.test", "XAPI_TOKEN": "canary", "XAPI_CONFIG_DIR": "/nonexistent"}


@pytest.mark.parametrize(
    "wishes",
    [
        Wishes([]),
        Wishes(["/a", "stray"]),
        Wishes(["//other.test/"]),
        Wishes(["/a", "b=1"], data="x"),
        Wishes(["/a"], headers=["no colon"]),
        Wishes(["/a"], output="x", meta="x"),
    ],
)
def test_wrong_words_are_found_when_a_request_is_made_and_not_when_it_runs(wishes: Wishes) -> None:
    with pytest.raises(UsageError):
        Request(Runtime(ENVIRON), wishes)


def test_what_may_be_a_secret_is_not_in_the_repr() -> None:
    wishes = Wishes(["/a", "b=canary"], query=["canary"], headers=["canary"], data="canary")

    assert "canary" not in repr(wishes)
