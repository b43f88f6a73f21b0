"""Lists what a script can depend on, one line each: `make docs` writes `.surface`, a test compares it.

Names come from the tables of the program. Fields of an output have no table: they come from the output itself.
"""

import inspect
import json
import os
import signal
import tempfile
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

from typer.main import get_command

import xapi_cli
from tests.support.forks import Forks
from tests.support.program import Xapi
from tests.support.servers import Server, request, send
from tests.tools.manual import commands
from xapi_cli import errors
from xapi_cli.app import app
from xapi_cli.auth.account import Reason, Source, State
from xapi_cli.commands.doctor import Status
from xapi_cli.feature_table import FEATURES
from xapi_cli.features.batch.lines import KEYS
from xapi_cli.features.sandbox import Sandbox
from xapi_cli.settings.config_file import TOP_LEVEL_KEYS
from xapi_cli.settings.table import LIBRARY_PARAMETERS, PROFILE_KEYS, SETTINGS, VARIABLES

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MAPS = {"headers", "cold", "json", "paths"}  # their keys are data

# The closed set of values that a field of an output has.
_VALUES = {
    "token show --json field source": get_args(Source),
    "token status --json field source": get_args(Source),
    "token status --json field state": get_args(State),
    "profile list --json field [].state": (*get_args(State), "unknown"),
    "doctor --json field checks[].status": get_args(Status),
    "request --meta field login": get_args(Reason),
}


def surface(forks: Forks | None = None) -> str:
    """Return the text of `.surface`."""
    names = {*_commands(), *_settings(), *_errors(), *_library(), *_outputs(forks)}
    return "".join(f"{line}\n" for line in sorted(names))


# commands


def _commands() -> Iterator[str]:
    root = get_command(app)
    for _, command, context in commands("xapi", root, root.make_context("xapi", [], resilient_parsing=True)):
        name = context.command_path.removeprefix("xapi").strip()
        if name:
            yield f"command {name}"
        prefix = f"command {name} " if name else ""
        for parameter in command.get_params(context):
            if parameter.param_type_name == "argument":
                yield f"{prefix}argument {parameter.make_metavar(context)}"
            elif not parameter.hidden:
                yield from (f"{prefix}option {each}" for each in _option(parameter))


def _option(parameter: Any) -> Iterator[str]:
    """Yield each name of an option with the type of its value, and each value that is possible if they are few."""
    names = [*parameter.opts, *parameter.secondary_opts]
    choices = [getattr(each, "value", each) for each in getattr(parameter.type, "choices", ())]
    for name in names:
        yield name if parameter.is_flag else f"{name} {_type(parameter)}"
        yield from (f"{name} value {choice}" for choice in choices)


def _type(parameter: Any) -> str:
    is_integer = parameter.type.name.startswith("int")  # versions of Typer have different names of types
    return f"{'INTEGER' if is_integer else 'TEXT'}{'...' if parameter.multiple else ''}"


# settings


def _settings() -> Iterator[str]:
    for row in (*SETTINGS.values(), *VARIABLES):
        yield from (f"environment {name}" for name in row.variables)
    yield from (f"environment {name}" for feature in FEATURES.values() for name in feature.variables)
    yield from (f"config {key}" for key in TOP_LEVEL_KEYS)
    for key in PROFILE_KEYS:
        yield f"config profiles.NAME.{key}"
        yield f"output profile list --json field [].{key}"
        yield f"output profile show --json field {key}"
    for name, row in SETTINGS.items():
        yield from (f"setting {name} value {choice}" for choice in row.choices)


# errors and the library


def _errors() -> Iterator[str]:
    yield "exit-code 0"
    for name, each in vars(errors).items():
        if isinstance(each, type) and issubclass(each, errors.XapiError):
            codes = [errors.Interrupted(number).exit_code for number in _SIGNALS]
            for code in codes if each is errors.Interrupted else [each.exit_code]:
                yield f"exit-code {code}"
                yield f"python xapi_cli.errors.{name} exit-code {code}"
    for each in errors.derived():
        if each.is_of_line:
            yield f"output batch field error.kind value {each.kind} exit-code {each.exit_code}"


def _library() -> Iterator[str]:
    yield from (f"python xapi_cli.{name}" for name in xapi_cli.__all__)
    named = inspect.signature(xapi_cli.open_client).parameters.values()
    parameters = [each.name for each in named if each.kind is not inspect.Parameter.VAR_KEYWORD]
    yield from (f"python xapi_cli.open_client parameter {name}" for name in (*parameters, *LIBRARY_PARAMETERS))
    yield from (f"python xapi_cli.errors.XapiError attribute {name}" for name in vars(errors.XapiError("", hint="")))


# inputs and outputs


def _outputs(forks: Forks | None) -> Iterator[str]:
    yield from (f"input batch field {key}" for key in KEYS)
    for field, values in _VALUES.items():
        yield from (f"output {field} value {value}" for value in values)
    with tempfile.TemporaryDirectory(prefix="xapi-") as directory, Sandbox() as sandbox:
        xapi = Xapi(Path(directory) / "home", forks)
        try:
            yield from _of_commands(xapi, sandbox)
            yield from _of_batch(xapi)
            yield from _of_programs(xapi)
        finally:
            xapi.end()


def _printed(output: str, text: str) -> Iterator[str]:
    """Yield a line for each field in *text*, the JSON that *output* names."""
    yield from (f"output {output} field {name}" for name in _fields(json.loads(text)))


def _fields(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of the fields in *value*: `a.b` in an object in an object, `a[].b` in one of a list."""
    if isinstance(value, list):
        for each in value:
            yield from _fields(each, f"{path}[]")
    elif isinstance(value, dict):
        for key, inner in value.items():
            name = f"{path}.{key}" if path else key
            yield name
            if key not in _MAPS:
                yield from _fields(inner, name)


def _of_commands(xapi: Xapi, sandbox: Sandbox) -> Iterator[str]:
    """Log in, and yield what commands print as JSON about the account; the profile has it afterwards."""
    xapi.environ |= {"XAPI_PASSWORD": sandbox.settings["XAPI_PASSWORD"]}
    url, username = sandbox.settings["XAPI_BASE_URL"], sandbox.settings["XAPI_USERNAME"]
    for key, value in (("base_url", url), ("username", username)):
        xapi("profile", "set", key, value)
    xapi("login")
    for command in ("token show", "token status", "profile list", "profile show", "doctor"):
        yield from _printed(f"{command} --json", xapi(*command.split(), "--json").out)
    file = xapi.home / "meta"
    xapi("request", "/x-api/me", "--meta", str(file))
    yield from _printed("request --meta", file.read_text())


def _of_batch(xapi: Xapi) -> Iterator[str]:
    """Yield the fields of lines for a body of each kind, and for an invalid line."""
    bodies = {b"application/json": b"{}", b"text/plain": b"text", b"application/octet-stream": b"\xff"}
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
    responses = [head % (media_type, len(body), body) for media_type, body in bodies.items()]
    with Server(*([request(), send(response)] for response in responses)) as server:
        lines = '{"path": "/"}\n' * len(responses) + "{}\n"
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        printed = xapi("batch", "-j", "1", input=lines, env=env).out
    for line in printed.splitlines():
        yield from _printed("batch", line)


def _of_programs(xapi: Xapi) -> Iterator[str]:
    """Yield the variables that `exec` sets and `sandbox` prints, and the exit codes of `exec` itself."""
    yield from _variables("exec", set(xapi("exec", "--", "env").out.splitlines()), xapi.environ)
    sandbox = xapi.start("sandbox")
    assert sandbox.stdout is not None
    lines = os.read(sandbox.stdout.fileno(), 65536).decode().splitlines()
    yield from _variables("sandbox", [line.removeprefix("export ") for line in lines])
    for command in (str(xapi.home / "none"), str(xapi.home)):
        yield f"exit-code {xapi('exec', '--', command).code}"


def _variables(command: str, assignments: Iterable[str], known: Container[str] = ()) -> Iterator[str]:
    for name in (each.partition("=")[0] for each in assignments):
        if name.startswith("XAPI_") and name not in known:
            yield f"output {command} variable {name}"
