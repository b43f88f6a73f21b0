"""The curl command that does what a `xapi request` would do, without the token in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xapi_cli.body import build as body
from xapi_cli.errors import UsageError
from xapi_cli.body.items import Field, Items, Upload
from xapi_cli.render import shell_quoted

_SOURCES = ("profile", "base_url", "username", "storage")  # the settings that say whose token it is


@dataclass(frozen=True)
class CurlCommand:
    """A request as curl would send it; *flags* are xapi's own, which the token must be asked for with."""

    method: str | None
    url: str
    items: Items
    data: str | None
    form: bool
    flags: Mapping[str, str | None]
    include: bool = False
    output: str | None = None
    follow: bool = True

    def text(self) -> str:
        """Return the command for a POSIX shell."""
        words = ["curl", "--silent", "--show-error", "--globoff", "--path-as-is", "--compressed", "--fail-with-body"]
        words += self._method() + self._switches() + self._token() + self._headers() + self._body()
        command = " ".join([*words, shell_quoted(self.url)])
        if not self._sends_token:
            return command
        piped = f"{self._token_command()} | {command}"
        # The token comes in on stdin; a body that does as well moves to another descriptor.
        return f"{{ {piped}; }} 3<&0" if self._body_from_stdin else piped

    @property
    def _sends_token(self) -> bool:
        return not any(name.lower() == "authorization" for name, _ in self.items.headers)

    @property
    def _body_from_stdin(self) -> bool:
        return self.data == "@-" and self._sends_token

    def _token_command(self) -> str:
        given = [(name, self.flags.get(name)) for name in _SOURCES]
        options = [f"--{name.replace('_', '-')} {shell_quoted(value)}" for name, value in given if value]
        return " ".join(["xapi", "token", "show", "--header", *options])

    def _method(self) -> list[str]:
        has_body = self.data is not None or self.items.fields or self.items.uploads
        method = self.method or ("POST" if has_body else "GET")
        if method == "HEAD":
            return ["--head"]
        return [] if method == ("POST" if has_body else "GET") else ["--request", method]

    def _switches(self) -> list[str]:
        switches = ["--include"] if self.include else []
        switches += ["--output", shell_quoted(self.output)] if self.output else []
        # curl would carry a body, and headers of one's own, to whatever host it is redirected to.
        bare = self.data is None and not self.items.fields and not self.items.uploads and not self.items.headers
        return [*switches, "--location"] if self.follow and bare else switches

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
            return [word for part in parts for word in _part(part)]
        content = body.FORM if self.form else body.JSON
        typed = any(name.lower() == "content-type" for name, _ in self.items.headers)
        header = [] if typed else ["--header", shell_quoted(f"Content-Type: {content}")]
        if self.data is not None:
            return [*header, *self._data(self.data)]
        if not self.items.fields:
            return []
        return [*header, "--data-raw", shell_quoted(_text_of(self.items, form=self.form))]

    def _data(self, data: str) -> list[str]:
        if data == "@-":
            return ["--data-binary", "@/dev/fd/3" if self._sends_token else "@-"]
        return ["--data-binary", shell_quoted(data)] if data.startswith("@") else ["--data-raw", shell_quoted(data)]


def _part(part: Field | Upload) -> Sequence[str]:
    if isinstance(part, Upload):
        kind = f";type={part.content_type}" if part.content_type else ""
        return "--form", shell_quoted(f"{part.name}=@{_form_quoted(part.path)}{kind}")
    if part.path is not None:
        return "--form", shell_quoted(f"{part.name}=<{_form_quoted(part.path)}")
    return "--form-string", shell_quoted(f"{part.name}={part.text}")


def _form_quoted(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text_of(items: Items, *, form: bool) -> str:
    """Return the body that the fields make, as text; what is to come from stdin cannot be shown."""

    def no_stdin() -> None:
        raise UsageError("--curl cannot show a field that comes from stdin", hint="put it into a file")

    made = body.build(items, data=None, form=form, stdin=no_stdin)
    if made is None:
        return ""
    try:
        return b"".join(made).decode("utf-8", "surrogateescape")
    finally:
        made.close()
