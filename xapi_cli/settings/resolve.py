"""Resolve the settings, in order of precedence: flag, environment variable, profile, default."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from xapi_cli.errors import UsageError
from xapi_cli.hints import Option, Run, together
from xapi_cli.settings import config_file, values
from xapi_cli.settings.table import FEATURE_SETTINGS, SETTINGS, Settings
from xapi_cli.system.render import pasteable, printable

Flags = Mapping[str, str | None]
"""The values given on the command line, by the names of the settings; the value of a switch is "1" or "0"."""


def flag_of(setting: str) -> str:
    """Return what messages call the flag of *setting*."""
    return str(Option(setting))


def resolve(
    flags: Flags,
    environ: Mapping[str, str],
    *,
    may_create_profile: bool = False,
    option: Callable[[str], str] = flag_of,
) -> Settings:
    """Return the settings from *flags*, *environ* and the config file; *option* names the flag of a setting.

    Raises UsageError, which names the invalid value, for a value that is not usable and, unless *may_create_profile*,
    for a profile that does not exist.
    """
    path = config_file.config_path(environ)
    found = config_file.load(path)
    place, name = _selected_profile(flags, environ, found, option)
    profile = found.profiles.get(name)
    if profile is None and name != "default" and not may_create_profile:
        error = missing_profile(name, found)
        raise error if flags.get("profile") else UsageError(f"{place}: {error.message}", hint=error.hint)
    sources = _Sources(flags, environ, name, profile or {}, path.parent, option)
    given = {key: value for key in SETTINGS if (value := sources.value(key)) is not None}
    of_features = {key: given.pop(key) for key in FEATURE_SETTINGS if key in given}
    settings = Settings(**{**given, "profile": name}, of_features=of_features)
    _check_owner_of_secrets(settings, sources)
    if settings.token and settings.token_file:
        raise UsageError("XAPI_TOKEN and XAPI_TOKEN_FILE are both set", hint="unset one of them")
    uses_command = sources.profile.get("password_command") and not flags.get("password_command")
    mismatch = _mismatch(settings, sources) if uses_command or settings.headers else None
    return settings._replace(
        headers=() if mismatch else settings.headers,
        headers_mismatch=mismatch if settings.headers else None,
        password_command_mismatch=mismatch if uses_command else None,
        base_url_end=_base_url_end(flags, environ),
        overridden=_overridden(settings, sources),
        of_features={key: value for key, value in of_features.items() if _may_use(key, settings, sources)},
    )


def _base_url_end(flags: Flags, environ: Mapping[str, str]) -> str:
    """Return what is not part of the base URL that a flag or the variable gives; a slash in the latter is usual."""
    from xapi_cli.http import urls

    given = flags.get("base_url") or environ.get(SETTINGS["base_url"].variables[0]) or ""
    end = urls.pasted_end(given)
    return end if flags.get("base_url") or end.strip("/") else ""


def arguments(flags: Flags) -> Iterator[tuple[str, str | None]]:
    """Yield each flag in *flags* that `xapi token show` has too, and its value; the value of a switch is None."""
    for name, value in flags.items():
        if value and SETTINGS[name].commands in ("all", "network"):
            yield SETTINGS[name].flags[0], None if SETTINGS[name].is_switch else value


def without_profile(keys: Iterable[str], flags: Flags, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the settings in *keys* that are set; raises UsageError if one is not valid.

    No profile has a key for them, so this needs no config file, in which other settings may not be valid.
    """
    sources = _Sources(flags, environ, "", {}, Path())
    return {key: value for key in keys if (value := sources.value(key)) is not None}


def selected_profile(flags: Flags, environ: Mapping[str, str], found: config_file.Config) -> str:
    """Return the name of the selected profile, which may not exist; raise UsageError if the name is not valid."""
    return _selected_profile(flags, environ, found, flag_of)[1]


def _selected_profile(
    flags: Flags, environ: Mapping[str, str], found: config_file.Config, option: Callable[[str], str]
) -> tuple[str, str]:
    """Return what selects the profile, and its name."""
    (variable,) = SETTINGS["profile"].variables
    if flags.get("profile") == "":
        raise empty_option(option("profile"))
    places = {
        option("profile"): flags.get("profile"),
        variable: environ.get(variable),
        "default_profile": found.default_profile,
    }
    for place, name in places.items():
        if name:
            return place, str(prefixed(place, values.profile_name, name))
    return "", "default"


def missing_profile(name: str, found: config_file.Config) -> UsageError:
    """Return the error for the profile *name*, which is not in the config file."""
    from xapi_cli.hints import did_you_mean

    hint = f"create it with `xapi login --profile {pasteable(printable(name))}`"
    if found.profiles:
        hint = f"select another profile ({_listed(found.profiles)}), or {hint}"
    return UsageError(f"profile {printable(name)!r} does not exist", hint=did_you_mean(name, found.profiles, hint))


def account_in_profile(name: str, found: config_file.Config) -> dict[str, str]:
    """Return the base URL and the username that the profile *name* sets itself, as far as they are valid."""
    sources, account = _Sources({}, {}, name, found.profiles.get(name, {}), Path()), {}
    for key in ("base_url", "username"):
        with suppress(UsageError):
            if value := sources.profile_value(key):
                account[key] = value
    return account


def missing(key: str, profile: str | None = None, found: config_file.Config | None = None) -> UsageError:
    """Return the error for the setting *key*, which no source has; name the profiles in *found* that have it.

    *profile* is the selected profile; without it, the command is `login`, which the hint then does not suggest.
    """
    variable, where, select = SETTINGS[key].variables[0], "", ""
    if others := [other for other, settings in found.profiles.items() if settings.get(key)] if found else []:
        where, select = f" in profile {printable(str(profile))}", f"select a profile with -p ({_listed(others)}), "
    log_in = f", or set {variable}" if profile is None else (f", set {variable}, or run ", Run("login"))
    return UsageError(f"no {_NOUNS[key]}{where}", hint=together(select, ("give ", Option(key)), log_in))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(printable, names))


def prefixed(place: str, parse: Callable[..., Any], *arguments: Any) -> Any:
    """Return `parse(*arguments)`; if it raises UsageError, add *place*, which has the value, to the message."""
    try:
        return parse(*arguments)
    except UsageError as error:
        raise UsageError(f"{printable(place)}: {error.message}", hint=error.hint) from error


_NOUNS = {"base_url": "base URL", "username": "username"}  # what messages call the settings of an account
_OWNED = ("token", "token_file", "password")  # settings whose variables belong to the base URL in XAPI_BASE_URL


class _Sources(NamedTuple):
    """Everything that gives settings: flags, variables, and the config file in *directory* with the profile *name*."""

    flags: Flags
    environ: Mapping[str, str]
    name: str
    profile: Mapping[str, Any]
    directory: Path
    option: Callable[[str], str] = flag_of

    def __repr__(self) -> str:
        return f"_Sources({self.name!r}, …)"  # the environment contains secrets

    def value(self, key: str) -> Any:
        """Return the value of the setting *key* from the first source that has it, otherwise None."""
        setting, flag = SETTINGS[key], self.flags.get(key)
        if flag == "":
            raise empty_option(self.option(key))
        if flag:
            return prefixed(self.option(key), setting.type.parse, flag)
        for variable in setting.variables:
            if value := self.environ.get(variable):
                return prefixed(variable, setting.type.parse, value) if setting.reads_variables else None
        return self.profile_value(key)

    def profile_value(self, key: str) -> Any:
        """Return the value of the setting *key* from the profile alone, otherwise None."""
        value = self.profile.get(key)
        if value in (None, ""):
            return None
        return prefixed(f"profile {self.name}, {key}", SETTINGS[key].type.from_profile, value, self.directory)


def empty_option(name: str) -> UsageError:
    """Return the error for the option *name* with an empty value."""
    return UsageError(f"{name} is empty", hint="give a value, or omit the option")


def _check_owner_of_secrets(settings: Settings, sources: _Sources) -> None:
    """Raise UsageError if a secret in a variable would be used for another base URL than that in XAPI_BASE_URL.

    They belong together. So neither --base-url nor a profile that is named may select another one: that of the profile
    would be overridden, and so the secret would go elsewhere than the user asks for. `exec` sets XAPI_BASE_URL.
    """
    environ = sources.environ
    (variable,) = SETTINGS["base_url"].variables
    secrets = [each for key in _OWNED for each in SETTINGS[key].variables if environ.get(each)]
    if not secrets or not environ.get(variable):
        return
    owner = prefixed(variable, SETTINGS["base_url"].type.parse, environ[variable])
    is_named = sources.flags.get("profile") or environ.get(SETTINGS["profile"].variables[0])
    of_profile = sources.profile_value("base_url") if is_named and not sources.flags.get("base_url") else None
    for place, selected in ((sources.option("base_url"), settings.base_url), (f"profile {sources.name}", of_profile)):
        if selected not in (None, owner):
            raise UsageError(
                f"{secrets[0]} is for {printable(owner)} ({variable}), but {place} selects {printable(str(selected))}",
                hint=f"unset {secrets[0]} and {variable}, or select the same base URL",
            )


def _overridden(settings: Settings, sources: _Sources) -> str:
    """Return the variables that replace a setting of the account in the profile, if a flag selects the profile."""
    found = []
    for key in ("base_url", "username") if sources.flags.get("profile") else ():
        (variable,) = SETTINGS[key].variables
        is_used = sources.environ.get(variable) and not sources.flags.get(key)
        if is_used and sources.profile_value(key) not in (None, settings.get(key)):
            found.append(variable)
    return " and ".join(found)


def _may_use(key: str, settings: Settings, sources: _Sources) -> bool:
    """Return whether the setting *key* of a feature applies: the one of which it is a secret is that of the profile."""
    beside = FEATURE_SETTINGS[key].beside
    return not beside or sources.profile.get(beside) in (None, "", settings.get(beside))


def _mismatch(settings: Settings, sources: _Sources) -> str | None:
    """Return why a secret of the profile must not be used for the account of *settings*, or None if it may.

    It belongs to the base URL and the username of that profile, if it sets them: a flag or variable must not send it
    elsewhere.
    """
    for key in ("base_url", "username"):
        own, selected = sources.profile_value(key), settings.get(key)
        if own not in (None, selected):
            return f"it belongs to {printable(own)}, not to {printable(str(selected))}"
    return None
