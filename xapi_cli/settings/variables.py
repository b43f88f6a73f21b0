"""Other environment variables, which no flag and no profile overrides; the code that uses them reads them itself."""

from xapi_cli.settings.table import Setting

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
        "true: errors and warnings are annotations too, and `xapi token show` masks the token in the log",
        variables=("GITHUB_ACTIONS",),
    ),
    Setting(
        "",
        "Set by kubectl: the API version of the credential that it requests",
        variables=("KUBERNETES_EXEC_INFO",),
    ),
    Setting("", "Set by `xapi proxy` for its COMMAND: the Unix socket of the proxy", variables=("XAPI_PROXY_SOCKET",)),
    Setting("", "Backend of the keyring library", variables=("PYTHON_KEYRING_BACKEND",)),
)
