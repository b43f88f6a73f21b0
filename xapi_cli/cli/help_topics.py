"""What `xapi help TOPIC` tells: what belongs to no command alone."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """A page about one thing: what it is in *title*, *text* before and *after* the *rows* of a name and its meaning."""

    title: str
    text: str
    rows: tuple[tuple[str, str], ...]
    after: str = ""


TOPICS: Mapping[str, Topic] = {
    "environment": Topic(
        "Variables that xapi reads",
        "A setting comes from the first that has it: the flag, the variable, the profile, the default. An empty"
        " variable counts as unset; 0, false, no and off switch off.",
        (
            ("XAPI_PROFILE", "the profile to use (--profile)"),
            ("XAPI_BASE_URL", "where the API is (--base-url)"),
            ("XAPI_USERNAME", "the user's e-mail address (--username)"),
            ("XAPI_PASSWORD", "the password, for a login that nobody is asked for"),
            ("XAPI_TOKEN", "a ready-made token: used as it is, never stored, never renewed"),
            (
                "XAPI_TOKEN_BASE_URL",
                "the base URL that XAPI_TOKEN is for: with another one, xapi sends nothing (exit 2)",
            ),
            ("XAPI_STORAGE", "where the token is kept: auto, keyring, file or none (--storage)"),
            ("XAPI_TIMEOUT", "limit of each wait, in seconds (--timeout)"),
            ("XAPI_MAX_TIME", "limit of the whole command, in seconds (--max-time)"),
            ("XAPI_NO_INPUT", "1: never ask for anything (--no-input)"),
            ("XAPI_CONFIG_DIR", "the folder of config.toml"),
            ("XAPI_STATE_DIR", "where xapi/ is, the directory of locks and the file store"),
            ("XAPI_DEBUG", "1: an unexpected failure shows where it happened, without values"),
            ("SSL_CERT_FILE", "certificates to trust (--ca-bundle); SSL_CERT_DIR is a folder of them"),
            ("HTTPS_PROXY", "a proxy; likewise HTTP_PROXY, ALL_PROXY, and NO_PROXY for hosts without it"),
            ("NO_COLOR", "anything: no colours, which a pipe never gets"),
            ("GITHUB_ACTIONS", "true: `xapi token show` tells the runner to hide the token"),
            ("PYTHON_KEYRING_BACKEND", "the backend of the keyring library"),
        ),
        "`xapi profile set` keeps a setting in a profile; `xapi profile show` prints what is kept.",
    ),
    "exit-codes": Topic(
        "What the exit code says",
        "A failure is one line on stderr: `xapi: error: what happened; what to do`. With 10, `xapi login` helps; with"
        " 11, `xapi doctor` finds out more.",
        (
            ("0", "success"),
            ("1", "a failure of xapi itself, or of a check of `xapi doctor`"),
            ("2", "wrong usage or settings; nothing was sent. The line names the culprit"),
            ("3", "the final answer is a redirect: not followed, refused, or the eleventh"),
            ("4", "4xx from the API or, mostly, the token endpoint; a 401 is 10. Check path, base URL and rights"),
            ("5", "5xx from the API or the token endpoint. Try later, or use --retry"),
            ("10", "not authenticated: login refused, no token and no password, or 401 with a fresh token"),
            (
                "11",
                "no usable answer: name, connection, TLS, cut-off body, or no token in the token endpoint's answer",
            ),
            ("12", "it took too long. Raise --timeout or --max-time"),
            ("13", "the token store cannot be used. Unlock the keyring, or use --storage file"),
            ("14", "stdout or a local file cannot be written"),
            ("130", "SIGINT; 143 on SIGTERM, 129 on SIGHUP"),
            ("141", "the reader of stdout has gone, as with `head`"),
        ),
        "`xapi exec` ends with the code of the command that it runs, 127 when that is not found, 126 when it cannot be"
        " run.",
    ),
    "items": Topic(
        "The ITEMs of xapi request",
        "Each word after PATH is an ITEM. The separator that comes first in it decides what it is.",
        (
            ("name==value", "query parameter"),
            ("Name:value", "header; `Name:` with nothing removes a default one"),
            ("name=value", "JSON string field; form field with --form"),
            ("name:=JSON", "JSON field of any type"),
            ("name=@file", "field whose value is the content of a file"),
            ("name:=@file", "field whose value is the JSON in a file"),
            ("name@file", "file upload (multipart)"),
        ),
        'Quote an ITEM as the shell wants it: tags:=\'["a","b"]\'. A backslash keeps =, : or @ in a name. An'
        " Authorization header of your own switches the token and the automatic login off.",
    ),
}
