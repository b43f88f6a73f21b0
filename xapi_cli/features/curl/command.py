"""`--curl`: print the curl command that is equivalent to a request; it does not contain the token."""

import math
import os
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from xapi_cli.errors import UsageError
from xapi_cli.http import authorization, retry
from xapi_cli.http.send import MAX_REDIRECTS
from xapi_cli.request.body import build as body
from xapi_cli.request.items import STDIN, Field, Upload, sent_method
from xapi_cli.settings.resolve import arguments
from xapi_cli.settings.table import DEFAULT_TIMEOUT
from xapi_cli.system.redact import secret_values
from xapi_cli.system.render import printable, shell_quoted

if TYPE_CHECKING:
    from xapi_cli.request.plan import Plan

_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})  # without a body, they are sent with Content-Length: 0
_SPECIAL = '="\\\r\n;,'  # in the name of a part, curl reads them differently
_STDIN = "/dev/fd/3"  # the original stdin, while descriptor 0 supplies the token


def prepare(plan: "Plan", curl: bool) -> None:
    """Let *plan* print a command and notes on what it does differently, instead of sending anything."""
    plan.instead = lambda: _print_command(plan)


def _print_command(plan: "Plan") -> None:
    if STDIN in plan.items.files:
        raise UsageError("--curl cannot show a value that is read from stdin", hint="read it from a file")
    terminal, command = plan.context.terminal, _Command(plan)
    terminal.print(command.text())
    for note in command.notes():
        terminal.note(note)


class _Command:
    def __init__(self, plan: "Plan") -> None:
        self._plan, self._options, self._items, self._url = plan, plan.options, plan.items, plan.url
        self._settings, self._has_body, self._method = plan.context.settings, plan.has_body, plan.sent_method
        secrets = set(secret_values(self._settings.headers))
        defaults = {header for header in plan.context.default_headers if header[1] in secrets}
        self._secret = [name for name, value in plan.items.headers if (name, value) in defaults]
        self._headers = [header for header in plan.items.headers if header not in defaults]
        self._sends_token = not authorization.is_set_by_user(plan.items.headers)
        self._file = None if plan.options.output == "-" else plan.options.output
        # it would send the body and the user's headers to any host, and a method of --request after any redirect
        is_harmless = self._method in ("GET", "HEAD") and not self._has_body and not self._headers
        self._follows = plan.options.follow and is_harmless

    def text(self) -> str:
        """Return the command for a POSIX shell."""
        words = ["curl", "-q", "--silent", "--show-error", "--globoff", "--path-as-is", "--compressed"]
        words += [*self._method_words(), *self._output_words(), *self._transfer_words()]
        if self._sends_token:
            words += ["--header", "@-"]
        for name, value in self._headers:
            words += ["--header", self._header(name, value)]
        command = " ".join([*words, *self._body_words(), shell_quoted(self._url)])
        if not self._sends_token:
            return command
        switches = [] if self._options.automatic else ["--no-login"]
        flags = arguments(self._plan.context.flags)
        settings = [f"{flag} {shell_quoted(value)}" if value else flag for flag, value in flags]
        piped = f"{' '.join(['xapi', 'token', 'show', '--header', *switches, *settings])} | {command}"
        # stdin supplies the token, so a body from stdin is moved to another descriptor
        reads_stdin = self._options.data == f"@{STDIN}" or any(part.path == STDIN for part in self._items.parts)
        return f"{{ {piped}; }} 3<&0" if reads_stdin else piped

    def notes(self) -> Iterator[str]:
        """Yield what the command leaves out, and what it does differently."""
        if self._secret:
            yield f"omitted from the command, because their values are secrets: {', '.join(self._secret)}"
        if missing := list(self._missing()):
            yield f"omitted from the command, because curl has no equivalent: {', '.join(missing)}"
        for (separator, _, text), path in self._items.origins.items():
            if separator == "==@" or text != text.strip(" \t"):
                yield f"the command for curl contains the value from {printable(path)}"
        if self._options.follow and not self._follows:
            yield "curl does not follow redirects here: it would send the method, body and headers to any host"

    def _missing(self) -> Iterator[str]:
        """Yield the given options that curl does not support."""
        yield from (option for option in self._plan.given if option != "--curl")
        if self._options.csv:
            yield "--csv"
        if self._options.meta is not None:
            yield "--meta"
        if self._options.verbose:  # curl's --verbose shows the token
            yield "--verbose"
        if self._options.errors_to == "stderr":
            yield "--error-body"

    def _method_words(self) -> list[str]:
        if self._method != "HEAD":
            is_default = self._method == sent_method(None, has_body=self._has_body)  # of curl too
            return [] if is_default else ["--request", self._method]
        if self._has_body:
            raise UsageError("curl cannot send a HEAD request with a body", hint="omit --curl or the body")
        return ["--head"]

    def _output_words(self) -> list[str]:
        words = []
        if self._options.include and self._method != "HEAD":
            words += ["--dump-header", "-"] if self._file else ["--include"]
        if self._options.check_status:
            words.append("--fail" if self._file or self._options.errors_to == "none" else "--fail-with-body")
        if self._method == "HEAD":  # both print the headers, and xapi writes no file
            return words
        return [*words, "--output", shell_quoted(self._file)] if self._file else words

    def _transfer_words(self) -> Iterator[str]:
        if self._settings.max_time:
            yield from ("--max-time", f"{self._settings.max_time:g}")
        if (timeout := self._settings.timeout) != DEFAULT_TIMEOUT:
            yield from ("--connect-timeout", f"{timeout:g}")
            yield from ("--speed-limit", "1", "--speed-time", f"{math.ceil(timeout)}")
        if self._settings.retry and self._method in retry.IDEMPOTENT:
            yield from ("--retry", f"{self._settings.retry}", "--retry-connrefused")
        if bundle := self._settings.ca_bundle:
            yield from ("--capath" if os.path.isdir(bundle) else "--cacert", shell_quoted(bundle))
        if self._follows:
            yield from ("--location", "--max-redirs", str(MAX_REDIRECTS))
            yield from ("--proto-redir", "=https") if self._url.startswith("https:") else ()

    def _header(self, name: str, value: str | None) -> str:
        """Return the argument of `--header`; a value from a file is read when the command runs: it may be a secret."""
        path = self._items.origins.get((":@", name, value or ""))
        if path is None or not value:
            return shell_quoted(f"{name}:" if value is None else f"{name}: {value}" if value else f"{name};")
        content = f"tr -d '\\r\\n' <{shell_quoted(os.path.expanduser(path))}"
        return f'{shell_quoted(f"{name}: ")}"$({content})"'

    def _body_words(self) -> list[str]:
        if self._items.uploads:
            return [word for part in self._items.parts for word in self._part_words(part)]
        data = self._options.data
        if not self._has_body:
            content, words = "", ["--data-raw", "''"] if self._method in _WITH_BODY else []
        else:
            content = f" {body.FORM if self._options.form else body.JSON}"
            if data is None:
                words = ["--data-raw", shell_quoted(self._fields())]
            elif data.startswith("@"):
                words = ["--data-binary", shell_quoted(f"@{self._path(data[1:])}")]
            else:
                words = ["--data-raw", shell_quoted(data)]
        is_given = any(name.lower() == "content-type" for name, _ in self._headers)
        # the default of curl is always a form
        return words if is_given or not words else ["--header", shell_quoted(f"Content-Type:{content}"), *words]

    def _fields(self) -> str:
        def no_stdin() -> None:
            raise UsageError("--curl cannot show a field that is read from stdin", hint="read it from a file")

        make = body.form_body if self._options.form else body.json_body
        with closing(make(self._items.fields, no_stdin)) as found:
            return b"".join(found).decode("utf-8", "surrogateescape")

    def _part_words(self, part: Field | Upload) -> tuple[str, str]:
        texts = part.name + (body.filename(part) if isinstance(part, Upload) else "")
        if set(texts) & set(_SPECIAL):
            raise UsageError('--curl cannot show the name of a part that has one of = ; , " or \\ in it')
        if isinstance(part, Upload):
            name = ';filename="-"' if part.path == STDIN else ""
            file = f'"{_escaped(self._path(part.path))}";type={body.content_type(part)}{name}'
            return "--form", shell_quoted(f"{part.name}=@{file}")
        if part.path is None:
            return "--form-string", shell_quoted(f"{part.name}={part.text}")
        return "--form", shell_quoted(f'{part.name}=<"{_escaped(self._path(part.path))}"')

    def _path(self, path: str) -> str:
        if path == STDIN:
            return _STDIN if self._sends_token else STDIN
        return os.path.expanduser(path)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
