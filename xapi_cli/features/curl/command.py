"""The curl command that is equivalent to an `xapi request`; it does not contain the token."""

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from xapi_cli.errors import UsageError
from xapi_cli.http import authorization, retry
from xapi_cli.http.send import MAX_REDIRECTS
from xapi_cli.request.body import build as body
from xapi_cli.request.body.build import content_type, disposition, filename
from xapi_cli.request.body.sources import check_exists
from xapi_cli.request.items import STDIN, Field, Items, Upload, sent_method
from xapi_cli.request.options import RequestOptions
from xapi_cli.settings.resolve import arguments
from xapi_cli.system.render import printable, shell_quoted

_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})  # without a body, they are sent with Content-Length: 0
_SPECIAL = re.compile(r'[="\\\r\n]')  # ends a name in curl, or is escaped differently by some curl versions
_STDIN = "/dev/fd/3"  # the original stdin, while descriptor 0 supplies the token


@dataclass(frozen=True)
class CurlCommand:
    """The request that *options* describe, with the parsed *method*, *url* and *items*, as a curl command.

    *flags* are the settings flags that are passed to `xapi token show`. *timeout* and *max_time* are in seconds.
    """

    options: RequestOptions
    method: str
    url: str
    items: Items
    flags: Mapping[str, str | None]
    verbose: bool = False
    timeout: float | None = None
    max_time: float | None = None
    ca_bundle: str | None = None

    def text(self) -> str:
        """Return the command for a POSIX shell."""
        arguments = ["curl", "-q", "--silent", "--show-error", "--globoff", "--path-as-is", "--compressed"]
        arguments += self._method_options() + self._transfer_options() + self._token_options()
        arguments += self._user_headers() + self._body_options()
        command = " ".join([*arguments, shell_quoted(self.url)])
        if not self._sends_token:
            return command
        piped = f"{self._token_command()} | {command}"
        # stdin supplies the token, so a body from stdin is moved to another descriptor.
        return f"{{ {piped}; }} 3<&0" if self._reads_stdin else piped

    def differences(self) -> Iterator[str]:
        """Yield messages for the user about the differences from xapi that the given flags cause."""
        if missing := list(self._missing_flags()):
            yield f"omitted from the command, because curl has no equivalent: {', '.join(missing)}"
        for (separator, _, text), path in self.items.origins.items():
            if separator == "==@" or text != text.strip(" \t"):
                yield f"the command for curl contains the value from {printable(path)}"
        if self._output_path:
            yield "curl writes FILE as the body arrives, not atomically"
        if self._retries:
            yield "curl's --retry also retries after 408, 500 and a timeout, and prints the body of each failed attempt"
        if self.options.follow and not self._may_follow:
            repeats = f"repeat the {self.method} where xapi sends a GET"
            sends = "send the body and your headers to any host"
            yield f"curl does not follow redirects here: it would {sends if self._has_own_data else repeats}"
        if self.timeout is not None:
            yield "curl has no timeout for each wait: --speed-time ends a transfer that stalls for that long"

    def _missing_flags(self) -> Iterator[str]:
        """Yield the given flags that curl does not support."""
        if self.options.resume:  # curl's does not check that the file is still the same
            yield "--continue"
        if self.options.pages is not None:
            yield "--paginate"
        if self.options.filter is not None:
            yield "--jq"
        if self.options.expect:
            yield "--expect"
        if self.options.until is not None:
            yield "--until"
        if self.options.meta is not None:
            yield "--meta"
        if self.verbose:  # curl's --verbose shows the token
            yield "--verbose"
        error_body = self.options.error_body()
        if (error_body == "stderr" and self.options.pages is None and self.options.filter is None) or (
            error_body == "none" and not self.options.check_status
        ):
            yield "--error-body"

    @property
    def _retries(self) -> int:
        return self.options.retries or 0 if self.method in retry.IDEMPOTENT else 0

    @property
    def _output_path(self) -> str | None:
        return None if self.options.output == "-" else self.options.output

    @property
    def _may_follow(self) -> bool:
        """Return whether curl may follow redirects.

        It would send the body and the user's headers to any host, and a method that --request names after any redirect.
        """
        return self.options.follow and self.method in {"GET", "HEAD"} and not self._has_own_data

    @property
    def _has_own_data(self) -> bool:
        return self._has_body or bool(self.items.headers)

    @property
    def _sends_token(self) -> bool:
        return not authorization.is_set_by_user(self.items.headers)

    @property
    def _has_body(self) -> bool:
        return self.items.has_body(self.options.data)

    @property
    def _reads_stdin(self) -> bool:
        return self.options.data == f"@{STDIN}" or any(part.path == STDIN for part in self.items.parts)

    def _token_command(self) -> str:
        switches = [] if self.options.automatic else ["--no-login"]
        settings = [f"{flag} {shell_quoted(value)}" if value else flag for flag, value in arguments(self.flags)]
        return " ".join(["xapi", "token", "show", "--header", *switches, *settings])

    def _method_options(self) -> list[str]:
        if self.method != "HEAD":
            is_default = self.method == sent_method(None, has_body=self._has_body)  # of curl too
            return [] if is_default else ["--request", self.method]
        if self._has_body:
            raise UsageError("curl cannot send a HEAD request with a body", hint="omit --curl or the body")
        return ["--head"]

    def _transfer_options(self) -> list[str]:
        options = self._header_options() + self._output_options() + self._timeout_options()
        if self._retries:
            options += ["--retry", f"{self._retries}", "--retry-connrefused"]
        if self.ca_bundle:
            option = "--capath" if os.path.isdir(self.ca_bundle) else "--cacert"
            options += [option, shell_quoted(self.ca_bundle)]
        return [*options, *self._redirect_options()]

    def _header_options(self) -> list[str]:
        if not self.options.include or self.method == "HEAD":
            return []
        return ["--dump-header", "-"] if self._output_path else ["--include"]

    def _timeout_options(self) -> list[str]:
        options = ["--max-time", f"{self.max_time:g}"] if self.max_time else []
        if self.timeout is not None:
            options += ["--connect-timeout", f"{self.timeout:g}"]
            options += ["--speed-limit", "1", "--speed-time", f"{math.ceil(self.timeout)}"]
        return options

    def _redirect_options(self) -> list[str]:
        if not self._may_follow:
            return []
        safe = ["--proto-redir", "=https"] if self.url.startswith("https:") else []
        return ["--location", "--max-redirs", str(MAX_REDIRECTS), *safe]

    def _output_options(self) -> list[str]:
        """Return the options that write the body as xapi does: an error response does not change FILE."""
        drops_errors = self._output_path or self.options.error_body() == "none"
        fail = ["--fail" if drops_errors else "--fail-with-body"] if self.options.check_status else []
        if self.method == "HEAD":  # curl writes the response headers as the body
            return fail if self.options.include else [*fail, "--output", "/dev/null"]
        return [*fail, "--output", shell_quoted(self._output_path)] if self._output_path else fail

    def _token_options(self) -> list[str]:
        return ["--header", "@-"] if self._sends_token else []

    def _user_headers(self) -> list[str]:
        return [word for name, value in self.items.headers for word in ("--header", self._user_header(name, value))]

    def _user_header(self, name: str, value: str | None) -> str:
        """Return the argument of `--header`; a value from a file is read when the command runs: it may be a secret."""
        path = self.items.origins.get((":@", name, value or ""))
        if path is None or not value:
            return shell_quoted(f"{name}:" if value is None else f"{name}: {value}" if value else f"{name};")
        content = f"tr -d '\\r\\n' <{shell_quoted(os.path.expanduser(path))}"
        return f'{shell_quoted(f"{name}: ")}"$({content})"'

    def _body_options(self) -> list[str]:
        if self.items.uploads:
            return [argument for part in self.items.parts for argument in self._form_options(part)]
        if not self._has_body:
            return self._with_content_type("", ["--data-raw", "''"]) if self.method in _WITH_BODY else []
        content = body.FORM if self.options.form else body.JSON
        return self._with_content_type(f" {content}", self._data_options())

    def _with_content_type(self, content: str, data: list[str]) -> list[str]:
        """Return *data* with a Content-Type header; the default of curl is always a form."""
        if any(name.lower() == "content-type" for name, _ in self.items.headers):
            return data
        return ["--header", shell_quoted(f"Content-Type:{content}"), *data]

    def _data_options(self) -> list[str]:
        if self.options.data is None:
            return ["--data-raw", shell_quoted(_body_text(self.items, form=self.options.form))]
        if self.options.data.startswith("@"):
            return ["--data-binary", shell_quoted(f"@{self._curl_path(self.options.data[1:])}")]
        return ["--data-raw", shell_quoted(self.options.data)]

    def _form_options(self, part: Field | Upload) -> Sequence[str]:
        is_plain = not _SPECIAL.search(part.name)
        if isinstance(part, Upload):
            name, headers = ';filename="-"' if part.path == STDIN else "", ""
            if not is_plain or _SPECIAL.search(filename(part)):
                headers = _part_headers(disposition(part.name, filename(part)))
            file = f'"{_escape(self._curl_path(part.path))}";type={content_type(part)}{headers or name}'
            return "--form", shell_quoted(f"{'' if headers else part.name}=@{file}")
        if part.path is None and is_plain:
            return "--form-string", shell_quoted(f"{part.name}={part.text}")
        content = f'"{_escape(part.text or "")}"' if part.path is None else f'<"{_escape(self._curl_path(part.path))}"'
        headers = "" if is_plain else _part_headers(disposition(part.name))
        return "--form", shell_quoted(f"{part.name if is_plain else ''}={content}{headers}")

    def _curl_path(self, path: str) -> str:
        if path == STDIN:
            return _STDIN if self._sends_token else STDIN
        check_exists(path)  # without the file, curl would send an empty body
        return os.path.expanduser(path)


def _part_headers(header: str) -> str:
    """Return the suffix that sets *header* on a part of `--form`; curl sends it unchanged."""
    return f';headers="{_escape(header)}"'


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _body_text(items: Items, *, form: bool) -> str:
    """Return the body of the fields as text; raise UsageError if a field is read from stdin."""

    def no_stdin() -> NoReturn:
        raise UsageError("--curl cannot show a field that is read from stdin", hint="read it from a file")

    request_body = body.build(items, data=None, form=form, stdin=no_stdin)
    if request_body is None:
        return ""
    try:
        return b"".join(request_body).decode("utf-8", "surrogateescape")
    finally:
        request_body.close()
