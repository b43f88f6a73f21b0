"""The table of settings: one row per setting, from which everything else that concerns it derives.

These derive from a row: the flag, its text in `xapi --help` and its completion (`cli.options`), the environment
variable (`resolve`), the key of a profile (`config_file`, `xapi profile`), the parameters of `open_client`, and the
table in `docs/settings.md`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from xapi_cli.feature_table import FEATURES
from xapi_cli.feature_table import Setting as FeatureSetting
from xapi_cli.http import urls
from xapi_cli.settings import values
from xapi_cli.store import registry
from xapi_cli.system import message_format

DEFAULT_TIMEOUT = 30.0
MAX_RETRIES = 100

# The commands that have the flag of a setting: all that use an account, those that send requests, those that send
# requests of the user (calls), those that compose them (sends: request and batch, with a row of their options), or only
# the named one, which passes the name of the setting to `settings_flags`.
Commands = Literal["all", "network", "calls", "sends", "login", "request"]


class Setting(NamedTuple):
    """How users give one setting, in which form, and what the documentation says about it."""

    help: str  # one sentence without its period, for `xapi --help` and the table in docs/settings.md
    type: values.Text = values.Text()
    flags: tuple[str, ...] = ()
    off_flag: str | None = None  # of a switch: for one command, the opposite of the variable or the profile
    metavar: str | None = None
    commands: Commands = "all"
    variables: tuple[str, ...] = ()  # the first that is not empty counts
    reads_variables: bool = True  # otherwise they replace the key of a profile, but `http.tls` reads them
    secret: bool = False  # child processes do not inherit the variables
    in_profile: bool = False  # whether a profile has a key for it, of the same name
    in_library: bool = False  # whether `open_client` takes it
    default: str = "none"  # what documentation shows if the field has no default value

    @property
    def choices(self) -> tuple[str, ...]:
        """The possible values, if they are few."""
        return self.type.names if isinstance(self.type, values.Choice) else ()

    @property
    def is_switch(self) -> bool:
        """Whether the flag takes no value."""
        return isinstance(self.type, values.Switch)


_PROMPTED = "`login` prompts for it on a terminal; otherwise exit code 2"


class Settings(NamedTuple):
    """All settings, resolved and validated; times are in seconds. Each field with a Setting is a row of the table."""

    profile: Annotated[
        str,
        Setting(
            "Profile to use",
            values.Text(values.profile_name),
            flags=("--profile", "-p"),
            metavar="NAME",
            variables=("XAPI_PROFILE",),
        ),
    ] = "default"
    base_url: Annotated[
        str | None,
        Setting(
            "Base URL of the API",
            values.Text(urls.base_url),
            flags=("--base-url",),
            metavar="URL",
            variables=("XAPI_BASE_URL",),
            in_profile=True,
            in_library=True,
            default=_PROMPTED,
        ),
    ] = None
    username: Annotated[
        str | None,
        Setting(
            "Username, an email address",
            values.Text(values.username),
            flags=("--username", "-u"),
            metavar="EMAIL",
            variables=("XAPI_USERNAME",),
            in_profile=True,
            in_library=True,
            default=_PROMPTED,
        ),
    ] = None
    password: Annotated[
        str | None,
        Setting(
            "Password for logins, so that xapi does not prompt for it",
            flags=("--password-stdin",),  # takes no value: `login` reads stdin
            commands="login",
            variables=("XAPI_PASSWORD",),
            secret=True,
            default="prompt on a terminal",
        ),
    ] = None
    password_command: Annotated[
        tuple[str, ...] | None,
        Setting(
            "Run CMD to get the password; CMD is stored in the profile",
            values.Command(),
            flags=("--password-command",),
            metavar="CMD",
            commands="login",
            in_profile=True,
        ),
    ] = None
    token: Annotated[
        str | None,
        Setting(
            "Access token to use as is; it is never stored and never renewed",
            values.Text(values.access_token),
            variables=("XAPI_TOKEN",),
            secret=True,
        ),
    ] = None
    token_file: Annotated[
        str | None,
        Setting(
            "File that contains the access token; each command reads it, and rereads it after a 401",
            values.FilePath(),
            variables=("XAPI_TOKEN_FILE",),
        ),
    ] = None
    storage: Annotated[
        str,
        Setting(
            f"Where the token is stored: {registry.alternatives()}",
            values.Choice("storage", registry.names()),
            flags=("--storage",),
            metavar="STORAGE",
            variables=("XAPI_STORAGE",),
            in_profile=True,
            in_library=True,
        ),
    ] = registry.AUTO
    timeout: Annotated[
        float,
        Setting(
            "Time limit for each network operation, and for a whole login",
            values.TimeLimit(),
            flags=("--timeout",),
            metavar="DURATION",
            commands="network",
            variables=("XAPI_TIMEOUT",),
            in_profile=True,
            in_library=True,
        ),
    ] = DEFAULT_TIMEOUT
    max_time: Annotated[
        float | None,
        Setting(
            "Time limit of the whole command",
            values.TimeLimit(),
            flags=("--max-time",),
            metavar="DURATION",
            commands="network",
            variables=("XAPI_MAX_TIME",),
            in_profile=True,
        ),
    ] = None
    ca_bundle: Annotated[
        str | None,
        Setting(
            "Certificates to trust instead of those of the operating system: a PEM file or a directory",
            values.FilePath(),
            flags=("--ca-bundle",),
            metavar="PATH",
            commands="network",
            variables=("SSL_CERT_FILE", "SSL_CERT_DIR"),
            reads_variables=False,
            in_profile=True,
            in_library=True,
            default="those of the operating system",
        ),
    ] = None
    read_only: Annotated[
        bool,
        Setting(
            "Send only GET, HEAD and OPTIONS, and refuse any other method",
            values.Switch(),
            flags=("--read-only",),
            off_flag="--write",
            commands="calls",
            variables=("XAPI_READ_ONLY",),
            in_profile=True,
            in_library=True,
        ),
    ] = False
    headers: Annotated[
        tuple[tuple[str, str], ...],
        Setting(
            "Headers of each request to the API, such as 'X-Team: blue'; sent only to the account of the profile",
            values.Headers(),
            in_profile=True,
        ),
    ] = ()
    retry: Annotated[
        int,
        Setting(
            "Retry up to N times after 429, 502, 503, 504 or a connection lost before the response (not POST or PATCH)",
            values.Count(MAX_RETRIES),
            flags=("--retry",),
            metavar="N",
            commands="sends",
            variables=("XAPI_RETRY",),
            in_profile=True,
        ),
    ] = 0
    log: Annotated[
        str | None,
        Setting(
            "Append a line of JSON to FILE for each request that is sent",
            values.FilePath(),
            flags=("--log",),
            metavar="FILE",
            commands="network",
            variables=("XAPI_LOG",),
            in_profile=True,
            in_library=True,
        ),
    ] = None
    no_input: Annotated[
        bool,
        Setting(
            "Never prompt",
            values.Switch(),
            flags=("--no-input",),
            variables=("XAPI_NO_INPUT",),
        ),
    ] = False
    quiet: Annotated[
        bool,
        Setting(
            "Print only warnings and errors on stderr",
            values.Switch(),
            flags=("--quiet",),
            variables=("XAPI_QUIET",),
        ),
    ] = False
    error_format: Annotated[
        str,
        Setting(
            "Format of messages on stderr: text, or json for one JSON object per line",
            values.Choice("format", message_format.NAMES),
            flags=(message_format.FLAG,),
            metavar="FORMAT",
            variables=(message_format.VARIABLE,),
        ),
    ] = message_format.TEXT
    of_features: Mapping[str, Any] = {}  # those that are set, by name; see `get`
    password_command_mismatch: str | None = None  # why the profile's password_command must not run
    headers_mismatch: str | None = None  # why the profile's headers must not be sent
    base_url_end: str = ""  # what was removed from the base URL that a flag or variable gives
    overridden: str = ""  # variables that replace the account of a profile selected by flag

    @property
    def token_variable(self) -> str | None:
        """The variable that supplies the token, None if xapi gets it itself."""
        if self.token:
            return "XAPI_TOKEN"
        return "XAPI_TOKEN_FILE" if self.token_file else None

    def get(self, name: str) -> Any:
        """Return the value of the setting *name*, which may be that of a feature."""
        if name in self._fields:
            return getattr(self, name)
        return self.of_features.get(name, FEATURE_SETTINGS[name].default)

    def __repr__(self) -> str:
        return f"Settings(profile={self.profile!r}, …)"  # some of the others are secrets, and more may contain one


FEATURE_SETTINGS = {name: row for feature in FEATURES.values() for name, row in feature.settings.items()}


def _of_feature(row: FeatureSetting) -> Setting:
    return Setting(
        row.help,
        values.Checked(row.check, row.stored) if row.check else values.Command(),
        variables=row.variables,
        secret=row.secret,
        in_profile=True,
    )


SETTINGS: Mapping[str, Setting] = {
    name: row
    for name, annotation in Settings.__annotations__.items()
    for row in getattr(annotation, "__metadata__", ())
} | {name: _of_feature(row) for name, row in FEATURE_SETTINGS.items()}

# Variables that no flag and no profile overrides; the code that uses them reads them itself.
VARIABLES: tuple[Setting, ...] = (
    Setting(
        "Proxies; NO_PROXY lists hosts that are reached without one",
        variables=("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    ),
    Setting(
        "Directory of config.toml",
        variables=("XAPI_CONFIG_DIR",),
        default="see [The config file](#the-config-file)",
    ),
    Setting(
        "Directory that contains xapi/, the directory for locks and the file storage",
        variables=("XAPI_STATE_DIR",),
        default="see [Storage](storage.md#files)",
    ),
    Setting("1: report where an unexpected failure occurred, without values", variables=("XAPI_DEBUG",)),
    Setting("Any value: no colors", variables=("NO_COLOR",)),
    Setting(
        "true: errors and warnings are also annotations, and `xapi token show` masks the token in the log",
        variables=("GITHUB_ACTIONS",),
    ),
    Setting("Backend of the keyring library", variables=("PYTHON_KEYRING_BACKEND",)),
)

SECRET_VARIABLES = tuple(name for row in SETTINGS.values() if row.secret for name in row.variables)
PROFILE_KEYS = tuple(name for name, row in SETTINGS.items() if row.in_profile)
LIBRARY_PARAMETERS = tuple(name for name, row in SETTINGS.items() if row.in_library)


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return *environ* without xapi's secrets, for a child process."""
    return {name: value for name, value in environ.items() if name not in SECRET_VARIABLES}


def other_tokens(environ: Mapping[str, str]) -> list[str]:
    """Return the variables in *environ* that must be unset where XAPI_TOKEN is set."""
    return ["XAPI_TOKEN_FILE"] if environ.get("XAPI_TOKEN_FILE") else []


def default_text(name: str) -> str:
    """Return the default value of the setting *name* as the user can write it; empty if it has none."""
    value = Settings._field_defaults[name] if name in Settings._fields else FEATURE_SETTINGS[name].default
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}s" if isinstance(value, float) else "" if value in (None, ()) else str(value)
