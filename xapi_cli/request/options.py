"""The options of a request: one object for sending it and for showing it as a curl command."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

ErrorBody = Literal["stdout", "stderr", "none"]


class RequestOptions(NamedTuple):
    """The arguments and options of `xapi request`."""

    arguments: Sequence[str]
    query: Sequence[str] = ()
    headers: Sequence[str] = ()
    data: str | None = None
    form: bool = False
    include: bool = False
    output: str | None = None
    retries: int = 0
    error_body: ErrorBody = "stdout"
    resume: bool = False
    meta: str | None = None
    check_status: bool = True
    follow: bool = True
    automatic: bool = True

    def __repr__(self) -> str:
        return "RequestOptions(…)"  # the arguments, headers and data may be secrets
