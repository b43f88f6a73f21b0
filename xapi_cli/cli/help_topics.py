"""The pages of `xapi help TOPIC`: what concerns more than one command."""

from collections.abc import Mapping
from typing import NamedTuple

from xapi_cli.http.send import TOO_MANY_REDIRECTS
from xapi_cli.settings.table import SETTINGS, Setting

# Variables that no flag and no profile overrides; the code that uses them reads them itself.
VARIABLES: tuple[Setting, ...] = (
    Setting(
        "proxy",
        "Proxies; NO_PROXY lists hosts that are reached without one",
        group="connection",
        variables=("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    ),
    Setting(
        "directory of `config.toml`",
        "Directory of config.toml",
        group="storage",
        variables=("XAPI_CONFIG_DIR",),
        default="see [The config file](#the-config-file)",
    ),
    Setting(
        "directory that contains the state directory `xapi`",
        "Directory that contains xapi/, the directory for locks and the file storage",
        group="storage",
        variables=("XAPI_STATE_DIR",),
        default="see [Storage](storage.md#files)",
    ),
    Setting("", "1: report where an unexpected failure occurred, without values", variables=("XAPI_DEBUG",)),
    Setting("", "Any non-empty value: no colors", variables=("NO_COLOR",)),
    Setting("", "0: no colors on a terminal", variables=("CLICOLOR",)),
    Setting(
        "",
        "1: colors in messages, help and tables, even in a pipe, but not in responses and JSON in a pipe",
        variables=("CLICOLOR_FORCE", "FORCE_COLOR"),
    ),
    Setting(
        "",
        "true: errors and warnings are also annotations, and `xapi token show` masks the token in the log",
        variables=("GITHUB_ACTIONS",),
    ),
    Setting("", "Set by `xapi proxy` for its COMMAND: the Unix socket of the proxy", variables=("XAPI_PROXY_SOCKET",)),
    Setting("", "Backend of the keyring library", variables=("PYTHON_KEYRING_BACKEND",)),
)


class Topic(NamedTuple):
    """A help page: *text*, a table of *rows* with a name and its meaning, and the text *after* the table."""

    title: str
    text: str
    rows: tuple[tuple[str, str], ...]
    after: str = ""


def _meaning(setting: Setting) -> str:
    flags = [*setting.flags[:1], *([setting.off_flag] if setting.off_flag else [])]
    return f"{setting.help} ({', '.join(flags)})" if flags else setting.help


TOPICS: Mapping[str, Topic] = {
    "environment": Topic(
        "Environment variables",
        "For each setting, the first of these wins: flag, variable, profile, default."
        " An empty variable is treated as unset. In an on/off variable, 0, false, no and off mean off."
        " Write a duration as 90s, 30m, 2h, 7d or 1h30m, or as a number of seconds.",
        tuple((", ".join(row.variables), _meaning(row)) for row in (*SETTINGS.values(), *VARIABLES) if row.variables),
        "`xapi profile set` stores a setting in a profile; `xapi profile show` prints the stored settings.",
    ),
    "exit-codes": Topic(
        "Exit codes",
        "A failure is reported in one line on stderr: `xapi: error: what happened; what to do`. If the exit code is 10,"
        " run `xapi login`. If it is 11, run `xapi doctor`.",
        (
            ("0", "success"),
            (
                "1",
                (
                    "unexpected failure of xapi itself, a failed check of `xapi doctor`, changes that "
                    "`xapi api diff` found, a filter of `--jq` or `--until` that failed, or a `--merge` whose output "
                    "is incomplete or ambiguous"
                ),
            ),
            ("2", "invalid usage or settings; nothing was sent (in `batch`: an invalid line, which was not sent)"),
            ("3", f"the final response is a redirect: not followed, refused, or {TOO_MANY_REDIRECTS}"),
            ("4", "4xx from the API, except 401; 4xx from the token endpoint, except 400, 401, 403 and 422"),
            ("5", "5xx from the API or the token endpoint. Try again later, or, for 502, 503 and 504, use --retry"),
            ("6", "the response does not meet `--expect`. The body was printed"),
            (
                "10",
                (
                    "not authenticated: the login was rejected (400, 401, 403 or 422), xapi has no password or may not "
                    "log in (`--no-login`), or the API rejected a new token or your own token (401)"
                ),
            ),
            (
                "11",
                (
                    "no usable response: name resolution, connection, TLS, a truncated body, a body that is too large "
                    "for a line of `batch`, an invalid token response, or a response to `api load` or `api diff` that "
                    "is not an API description"
                ),
            ),
            ("12", "timeout, or `--until` was not met within `--max-time`. Raise --timeout or --max-time"),
            ("13", "the token store cannot be used. Unlock the keyring, or run `xapi login --storage file`"),
            ("14", "stdout or a local file cannot be written"),
            ("126", "the command of `exec` or `proxy` cannot be executed"),
            ("127", "the command of `exec` or `proxy` was not found"),
            ("129", "stopped by SIGHUP"),
            ("130", "stopped by SIGINT (Ctrl-C), except `sandbox` and `proxy`"),
            ("141", "stdout was closed early, as with `head`"),
            ("143", "stopped by SIGTERM"),
        ),
        "`xapi exec` and `xapi proxy` exit with the code of the command that they run. `xapi sandbox` and `xapi proxy`"
        " without a command serve until Ctrl-C, and then exit with code 0.",
    ),
    "items": Topic(
        "Request items",
        "Each argument after PATH is an ITEM. The earliest separator in it determines its meaning; if several"
        " separators start at the same position, the longest one wins.",
        (
            ("name==value", "query parameter"),
            ("Name:value", "header; `Name:` removes a default header, or one set earlier"),
            ("name=value", "JSON string field, or form field with --form"),
            ("name:=JSON", "JSON field of any type"),
            ("name[key]=value", "member of an object; including :=, =@ and :=@, and deeper: a[b][c]"),
            ("name[0]=value", "element of an array; elements before it that have no value are null"),
            ("name[]=value", "element appended to an array; []=value and [0]=value make the body an array"),
            ("name=@file", "field whose value is the text of a file"),
            ("name:=@file", "field whose value is the JSON in a file"),
            ("name==@file", "query parameter whose value is the text of a file, without the trailing newline"),
            ("Name:@file", "header whose value is the text of a file, without the trailing newline"),
            ("name@file", "file upload (multipart)"),
        ),
        'Quote special characters for the shell: tags:=\'["a","b"]\'. A backslash escapes =, : or @ in a name, and [ or'
        " ] in the name of a JSON field; a[\\0] is the member with the name 0. In forms and uploads, brackets are part"
        " of the name. For a value that starts with @, use -H, -q or :=. If you set or remove the Authorization header,"
        " xapi sends no token and does not log in.",
    ),
}
