"""The curl command that is equivalent to an `xapi request`; it does not contain the token."""

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from xapi_cli.errors import UsageError
from xapi_cli.http import retry
from xapi_cli.request.body import build as body
from xapi_cli.request.body.multipart import content_type, disposition, filename
from xapi_cli.request.body.sources import STDIN
from xapi_cli.request.items import Field, Items, Upload
from xapi_cli.system.render import shell_quoted

_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})  # without a body, they are sent with Content-Length: 0
_SPECIAL = re.compile(r'[="\\\r\n]')  # ends a name in curl, or is escaped differently by some curl versions
_STDIN = "/dev/fd/3"  # the original stdin, while descriptor 0 supplies the token


@dataclass(frozen=True)
class CurlCommand:
    """A request as a curl command; *flags* are the settings flags that are passed to `xapi token show`."""

    method: str | None
    url: str
    items: Items
    data: str | None = None
    form: bool = False
    flags: Mapping[str, str | None] | None = None
    include: bool = False
    output: str | None = None
    follow: bool = True
    check_status: bool = True
    automatic: bool = True
    retries: int = 0
    error_body: str = "stdout"
    meta: bool = False
    verbose: bool = False
    timeout: float | None = None
    max_time: float | None = None
    ca_bundle: str | None = None

    def text(self) -> str:
        """Return the command for a POSIX shell."""
        words = ["curl", "--silent", "--show-error", "--globoff", "--path-as-is", "--compressed"]
        words += self._method_words() + self._switches() + self._token() + self._headers() + self._body()
        command = " ".join([*words, shell_quoted(self.url)])
        if not self._sends_token:
            return command
        piped = f"{self._token_command()} | {command}"
        # stdin supplies the token, so a body from stdin is moved to another descriptor.
        return f"{{ {piped}; }} 3<&0" if self._reads_stdin else piped

    def differences(self) -> Iterator[str]:
        """Yield messages for the user about the differences from xapi that the given flags cause."""
        missing = [
            flag
            for flag, is_missing in (
                ("--meta", self.meta),
                ("--verbose", self.verbose),  # curl's --verbose shows the token
                ("--error-body", self._loses_error_body),
            )
            if is_missing
        ]
        if missing:
            yield f"left out, because curl has nothing like it: {', '.join(missing)}"
        if self.output:
            yield "curl writes FILE as the body arrives, not whole or not at all"
        if self._tries:
            yield "curl's --retry also tries again after 408, 500 and a timeout, and prints the body of each failure"
        if self.follow and not self._may_follow:
            yield "curl follows no redirect here: it would carry the body and your headers to any host"
        if self.timeout is not None:
            yield "curl has no limit for each wait: --speed-time ends a transfer that stands still for so long"

    @property
    def _tries(self) -> int:
        return self.retries if self._verb in retry.METHODS else 0

    @property
    def _loses_error_body(self) -> bool:
        return self.error_body == "stderr" or (self.error_body == "none" and not self.check_status)

    @property
    def _may_follow(self) -> bool:
        """Return whether curl may follow redirects: it would send the body and the user's headers to any host."""
        return self.follow and not self._has_body and not self.items.headers

    @property
    def _sends_token(self) -> bool:
        return not self._has_header("Authorization")

    @property
    def _has_body(self) -> bool:
        return self.data is not None or bool(self.items.fields or self.items.uploads)

    @property
    def _verb(self) -> str:
        return self.method or ("POST" if self._has_body else "GET")

    @property
    def _reads_stdin(self) -> bool:
        parts: list[Field | Upload] = [*self.items.fields, *self.items.uploads]
        return self.data == f"@{STDIN}" or any(part.path == STDIN for part in parts)

    def _has_header(self, name: str) -> bool:
        return any(own.lower() == name.lower() for own, _ in self.items.headers)

    def _token_command(self) -> str:
        given = {name: value for name, value in (self.flags or {}).items() if value}
        switches = ["--no-input"] if given.pop("no_input", None) else []
        switches += [] if self.automatic else ["--no-login"]
        options = [f"--{name.replace('_', '-')} {shell_quoted(value)}" for name, value in given.items()]
        return " ".join(["xapi", "token", "show", "--header", *switches, *options])

    def _method_words(self) -> list[str]:
        if self._verb != "HEAD":
            return [] if self._verb == ("POST" if self._has_body else "GET") else ["--request", self._verb]
        if self._has_body:
            raise UsageError("curl sends no HEAD with a body", hint="leave --curl or the body out")
        return ["--head"]

    def _switches(self) -> list[str]:
        switches = self._head() + self._output() + self._limits()
        if self._tries:
            switches += ["--retry", f"{self._tries}", "--retry-connrefused"]
        if self.ca_bundle:
            option = "--capath" if os.path.isdir(self.ca_bundle) else "--cacert"
            switches += [option, shell_quoted(self.ca_bundle)]
        return [*switches, *self._redirects()]

    def _head(self) -> list[str]:
        if not self.include or self._verb == "HEAD":
            return []
        return ["--dump-header", "-"] if self.output else ["--include"]

    def _limits(self) -> list[str]:
        switches = ["--max-time", f"{self.max_time:g}"] if self.max_time else []
        if self.timeout is not None:
            switches += ["--connect-timeout", f"{self.timeout:g}"]
            switches += ["--speed-limit", "1", "--speed-time", f"{math.ceil(self.timeout)}"]
        return switches

    def _redirects(self) -> list[str]:
        if not self._may_follow:
            return []
        safe = ["--proto-redir", "=https"] if self.url.startswith("https:") else []
        return ["--location", "--max-redirs", "10", *safe]

    def _output(self) -> list[str]:
        """Return the options that write the body as xapi does: an error response does not change FILE."""
        drops_errors = self.output or self.error_body == "none"
        fail = ["--fail" if drops_errors else "--fail-with-body"] if self.check_status else []
        if self._verb == "HEAD":  # curl writes the response headers as the body
            return fail if self.include else [*fail, "--output", "/dev/null"]
        return [*fail, "--output", shell_quoted(self.output)] if self.output else fail

    def _token(self) -> list[str]:
        return ["--header", "@-"] if self._sends_token else []

    def _headers(self) -> list[str]:
        lines = [
            f"{name}:" if value is None else f"{name}: {value}" if value else f"{name};"
            for name, value in self.items.headers
        ]
        return [word for line in lines for word in ("--header", shell_quoted(line))]

    def _body(self) -> list[str]:
        if self.items.uploads:
            parts: list[Field | Upload] = [*self.items.fields, *self.items.uploads]
            return [word for part in parts for word in self._part(part)]
        if not self._has_body:
            return self._typed("", ["--data-raw", "''"]) if self._verb in _WITH_BODY else []
        content = body.FORM if self.form else body.JSON
        return self._typed(f" {content}", self._data())

    def _typed(self, content: str, data: list[str]) -> list[str]:
        """Return *data* with a Content-Type header; the default of curl is always a form."""
        return (
            data if self._has_header("Content-Type") else ["--header", shell_quoted(f"Content-Type:{content}"), *data]
        )

    def _data(self) -> list[str]:
        if self.data is None:
            return ["--data-raw", shell_quoted(_text_of(self.items, form=self.form))]
        if self.data.startswith("@"):
            return ["--data-binary", shell_quoted(f"@{self._file(self.data[1:])}")]
        return ["--data-raw", shell_quoted(self.data)]

    def _part(self, part: Field | Upload) -> Sequence[str]:
        plain = not _SPECIAL.search(part.name)
        if isinstance(part, Upload):
            name, headers = ';filename="-"' if part.path == STDIN else "", ""
            if not plain or _SPECIAL.search(filename(part)):
                headers = _headers_word(disposition(part.name, filename(part)))
            file = f'"{_escaped(self._file(part.path))}";type={content_type(part)}{headers or name}'
            return "--form", shell_quoted(f"{'' if headers else part.name}=@{file}")
        if part.path is None and plain:
            return "--form-string", shell_quoted(f"{part.name}={part.text}")
        content = f'"{_escaped(part.text or "")}"' if part.path is None else f'<"{_escaped(self._file(part.path))}"'
        headers = "" if plain else _headers_word(disposition(part.name))
        return "--form", shell_quoted(f"{part.name if plain else ''}={content}{headers}")

    def _file(self, path: str) -> str:
        if path == STDIN:
            return _STDIN if self._sends_token else STDIN
        return os.path.expanduser(path)


def _headers_word(header: str) -> str:
    """Return the suffix that sets *header* on a part of `--form`; curl sends it unchanged."""
    return f';headers="{_escaped(header)}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _text_of(items: Items, *, form: bool) -> str:
    """Return the body of the fields as text; raise UsageError if a field is read from stdin."""

    def no_stdin() -> NoReturn:
        raise UsageError("--curl cannot show a field that comes from stdin", hint="put it into a file")

    made = body.build(items, data=None, form=form, stdin=no_stdin)
    if made is None:
        return ""
    try:
        return b"".join(made).decode("utf-8", "surrogateescape")
    finally:
        made.close()
