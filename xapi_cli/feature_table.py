"""The features, one row each: what is needed to know of them before they are imported. It has only strings.

The core reads this table and never imports a feature. A feature is one folder of `features/` and its row here; without
both, the rest works, and its commands, options, settings and words are unknown.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple


class Flag(NamedTuple):
    """How users give one option of a command: its *names* and what the help says about it.

    A `switch` takes no value, and `off` is one whose value is False if it is given. `texts` can be repeated; `count` is
    a number of at least 1.
    """

    names: tuple[str, ...]
    help: str
    heading: str | None = None
    metavar: str | None = None
    kind: str = "text"  # or switch, off, texts, count, repeat (how often it is given)
    choices: tuple[str, ...] = ()
    once: str = ""  # the hint of the error if it is given twice; without it, the last one applies


class Command(NamedTuple):
    """A command: its *heading* in `xapi --help`, its *summary*, and the *module* with a function of the same name.

    The module of a feature is named within the folder of the feature. With *subcommands*, the module has a function for
    each of them instead. A hyphen in a name is an underscore there.
    """

    heading: str
    summary: str
    module: str = "command"
    subcommands: tuple[str, ...] = ()


class Storage(NamedTuple):
    """One storage: its *name* in the settings, its *noun* for messages, and what it can do.

    *open* is a class that implements `store.protocol.Store`, *place* a function that returns where the records are,
    beside the state directory, and *session* a subclass of `store.login_session.LoginSession`, if machines share its
    login lock.
    """

    name: str
    noun: str
    open: str
    place: str = ""
    session: str = ""
    is_persistent: bool = True  # records outlive the process
    remembers_passwords: bool = False  # otherwise, the store omits the password of a record
    needs_state_directory: bool = False  # records are files in the state directory
    settings: tuple[str, ...] = ()  # the names of the settings that its store needs
    extra: str = ""  # the optional dependencies that it needs


class Setting(NamedTuple):
    """A setting without a flag, with a key in profiles, and what the *help* says about it.

    The function *check* returns the value for a text, or raises UsageError; *stored* does so for a text in a profile,
    if that may contain less. Without both, it is a command. A *secret* variable is not passed to child processes. What
    a profile sets applies only with the profile's own value of the setting *beside*.
    """

    help: str
    check: str = ""
    stored: str = ""
    variables: tuple[str, ...] = ()
    secret: bool = False
    default: str | None = None
    beside: str = ""


class Feature(NamedTuple):
    """All that belongs to one feature; a function is written as `module:name`.

    *options* of `request` are by the name of the parameter that they have in *prepare*. That is called with the plan of
    the request (see `request.plan`) and the values, if at least one of them is given, after the arguments have been
    parsed and before anything is read, opened or sent.

    *hooks* are called only if the directory *state* exists in the state directory: `words(params, incomplete)` returns
    what completion offers, and `profile_removed(state, name)` deletes what belonged to a profile. *variables* and their
    meanings are those that no setting has. *examples* are lines for the help of `request`.
    """

    commands: Mapping[str, Command] = {}
    options: Mapping[str, Flag] = {}
    prepare: str = ""
    hooks: Mapping[str, str] = {}
    state: str = ""
    variables: Mapping[str, str] = {}
    storage: Storage | None = None
    settings: Mapping[str, Setting] = {}
    examples: tuple[str, ...] = ()


REQUESTS, TESTING = "Requests", "Testing"  # headings of commands
RESPONSE, PAGES = "Response options", "Pagination options"  # headings of options

FEATURES: Mapping[str, Feature] = {
    "batch": Feature(
        commands={"batch": Command(REQUESTS, "Send many requests concurrently, one for each line of JSON.")}
    ),
    "each": Feature(commands={"each": Command(REQUESTS, "Send one request for each row of a list.")}),
    "proxy": Feature(
        commands={"proxy": Command(REQUESTS, "Serve the API to other programs without giving them the token.")},
        variables={"XAPI_PROXY_SOCKET": "Set by `xapi proxy` for its COMMAND: the Unix socket of the proxy"},
    ),
    "curl": Feature(
        options={
            "curl": Flag(
                ("--curl",), "Print the equivalent curl command instead of sending the request.", kind="switch"
            )
        },
        prepare="xapi_cli.features.curl.command:prepare",
    ),
    "downloads": Feature(
        options={
            "resume": Flag(
                ("--continue",),
                "With -o: keep an interrupted download in FILE.part (and FILE.part.json), and resume it.",
                RESPONSE,
                kind="switch",
            )
        },
        prepare="xapi_cli.features.downloads.request:prepare",
    ),
    "pages": Feature(
        options={
            "paginate": Flag(
                ("--paginate",),
                "Request all pages, and print each item (in a pipe, as one line of JSON).",
                PAGES,
                kind="switch",
            ),
            "items": Flag(
                ("--items",), "Field that contains the array of items, such as data.items.", PAGES, metavar="FIELD"
            ),
            "slurp": Flag(("--slurp",), "Print a single JSON array of all items.", PAGES, kind="switch"),
            "next_field": Flag(
                ("--next",),
                "Field that contains the URL of the next page, instead of the Link header.",
                PAGES,
                metavar="FIELD",
            ),
            "max_pages": Flag(("--max-pages",), "Request at most N pages.", PAGES, metavar="N", kind="count"),
        },
        prepare="xapi_cli.features.pages.request:prepare",
        examples=("xapi request /x-api/projects --paginate -o all.ndjson",),
    ),
    # after the features whose exchanges it cannot be combined with
    "jq": Feature(
        options={
            "jq": Flag(
                ("--jq",),
                "Apply a jq filter to the response, or to each item of all pages; print strings without quotes.",
                RESPONSE,
                metavar="FILTER",
            ),
            "expect": Flag(
                ("--expect",),
                "After a success, exit with code 6 if the jq filter yields false, null or nothing; repeatable.",
                RESPONSE,
                metavar="FILTER",
                kind="texts",
            ),
            "until": Flag(
                ("--until",),
                "Repeat a GET until the jq filter yields a value other than false and null; print the last body.",
                RESPONSE,
                metavar="FILTER",
            ),
            "every": Flag(
                ("--every",),
                "With --until: the time between two requests.  [default: 2s]",
                RESPONSE,
                metavar="DURATION",
            ),
        },
        prepare="xapi_cli.features.jq.request:prepare",
        examples=("xapi request /x-api/me --jq .email",),
    ),
    "openapi": Feature(
        commands={
            "api": Command(
                REQUESTS,
                "Load, look up and compare API descriptions (OpenAPI).",
                subcommands=("load", "list", "show", "diff"),
            )
        },
        state="api",
        hooks={
            "words": "xapi_cli.features.openapi.completion:words",
            "profile_removed": "xapi_cli.features.openapi.description:remove",
        },
    ),
    "sandbox": Feature(
        commands={
            "demo": Command(TESTING, "Show the main workflow on a local test server.", "demo"),
            "sandbox": Command(TESTING, "Run a local test server that behaves like the API."),
        },
    ),
    "redis": Feature(
        storage=Storage(
            "redis",
            "Redis",
            "xapi_cli.features.redis.store:RedisStore",
            "xapi_cli.features.redis.store:place",
            "xapi_cli.features.redis.store:RedisSession",
            settings=("redis_url", "redis_prefix", "redis_password_command", "ca_bundle"),
            extra="redis",
        ),
        settings={
            "redis_url": Setting(
                "URL of the Redis server: redis://, rediss:// or unix://; put a password only here, not in the config"
                " file",
                "xapi_cli.features.redis.settings:address",
                "xapi_cli.features.redis.settings:address_without_password",
                variables=("XAPI_REDIS_URL",),
                secret=True,
            ),
            "redis_prefix": Setting(
                "Prefix of all keys that xapi uses in Redis",
                "xapi_cli.features.redis.settings:prefix",
                variables=("XAPI_REDIS_PREFIX",),
                default="xapi",
            ),
            "redis_password_command": Setting(
                "Command that prints the password of the Redis server",
                beside="redis_url",
            ),
        },
    ),
    "helper": Feature(
        storage=Storage(
            "helper",
            "the credential helper",
            "xapi_cli.features.helper.store:HelperStore",
            "xapi_cli.features.helper.store:place",
            remembers_passwords=True,
            settings=("credential_helper",),
        ),
        settings={
            "credential_helper": Setting(
                "Program for storage helper: NAME of docker-credential-NAME, or an absolute path",
                "xapi_cli.features.helper.settings:program",
                variables=("XAPI_CREDENTIAL_HELPER",),
            )
        },
    ),
}


def examples() -> list[str]:
    """Return the examples of the features for the help of `request`."""
    return [line for feature in FEATURES.values() for line in feature.examples]


def request_options() -> dict[str, Flag]:
    """Return the options of `request` that features add, by name."""
    return {name: flag for feature in FEATURES.values() for name, flag in feature.options.items()}


def prepare(plan: Any, values: Mapping[str, Any]) -> None:
    """Let each feature of which *values* has an option that was given prepare *plan*."""
    for feature in FEATURES.values():
        if not feature.options:
            continue
        given = [flag.names[0] for name, flag in feature.options.items() if values[name] not in (None, False, (), [])]
        if given:
            plan.given += given
            load(feature.prepare)(plan, **{name: values[name] for name in feature.options})


def hooks(name: str, state: Path) -> Iterator[Callable[..., Any]]:
    """Yield the functions of the hook *name* of the features that have a directory in *state*, the state directory."""
    for feature in FEATURES.values():
        if name in feature.hooks and os.path.isdir(state / feature.state):
            yield load(feature.hooks[name])


def load(name: str) -> Callable[..., Any]:
    """Return the function *name*, which is written as `module:name`; imports its module."""
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found
