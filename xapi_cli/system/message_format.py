"""The format of messages on stderr: text, or with --error-format json one line of JSON for each.

The format is known before the command line is parsed, because its errors are messages too. On GitHub Actions, errors
and warnings as text are also commands of the runner, which shows them as annotations.
"""

FLAG, VARIABLE = "--error-format", "XAPI_ERROR_FORMAT"
TEXT, JSON = NAMES = ("text", "json")

TYPE_CHECKING = False  # importing `typing` takes longer than this module
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def is_json(arguments: "Sequence[str]", environ: "Mapping[str, str]") -> bool:
    """Return whether the *arguments* of a command line, or else *environ*, select JSON; values are not checked."""
    found = environ.get(VARIABLE)
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name == FLAG:
            found = value if equals else following
    return found == JSON


def line(level: str, kind: str, message: str, **members: object) -> str:
    """Return a message as one line of JSON, with those *members* that are not None.

    *level* is error, warning or note. *kind* is that of an `XapiError`, or the level, or `log` for a line of a log.
    """
    from json import dumps

    code = {"code": members.pop("code")} if "code" in members else {}
    found = {"level": level, **code, "kind": kind, "message": message, **members}
    return dumps({name: value for name, value in found.items() if value is not None}, ensure_ascii=False)


def is_github_runner(environ: "Mapping[str, str]") -> bool:
    """Return whether a runner of GitHub Actions reads the messages."""
    return environ.get("GITHUB_ACTIONS") == "true"


def workflow_command(command: str, data: str) -> str:
    """Return the *command* of the runner of GitHub Actions with *data*, as a line."""
    # https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts
    escaped = data.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return f"::{command}::{escaped}"
