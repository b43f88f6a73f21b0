"""Any config file, flags and environment give valid settings or one UsageError that names the place."""

import os
import re
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xapi_cli.errors import OutputError, UsageError
from xapi_cli.http import urls
from xapi_cli.settings.resolve import resolve
from xapi_cli.store import registry
from xapi_cli.system.render import printable

FILES = [
    b"",
    b'# mine\ndefault_profile = "work"\n\n[profiles.work]\nbase_url = "https://api.test/v1"  # ours\nusername = "me"\n',
    b"[profiles.default]\npassword_command = ['pass', 'show', 'api']\nstorage = 'file'\ntimeout = 2.5\nmax_time = 60\n",
    b'[profiles]\na = {base_url = "http://[::1]:8080", ca_bundle = "/etc/ca.pem"}\n[profiles."b c"]\n',
    b'profiles.a.username = """x\ny"""\r\nprofiles.a.timeout = 0x10\r\n',
]
VALUES = st.one_of(
    st.binary(max_size=30).filter(lambda data: b"\0" not in data).map(os.fsdecode),
    st.sampled_from(["", "0", "off", "yes", "-1", "nan", "1e9", "1_0", "file", "keyring", "https://api.test", "x@y"]),
    st.text(st.sampled_from("/\\:@?#%.[]ahtps0127 \n\x1bé=&"), max_size=20).map(lambda text: text.replace("\0", "")),
)
NAMES = ["BASE_URL", "USERNAME", "STORAGE", "TIMEOUT", "MAX_TIME", "NO_INPUT", "QUIET", "PROFILE"]
FLAGS = ["base_url", "username", "storage", "timeout", "max_time", "profile", "ca_bundle", "password_command"]

per_example = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # each example writes its own file


@per_example
@given(
    st.dictionaries(st.sampled_from(FLAGS), st.none() | VALUES),
    st.dictionaries(st.sampled_from(NAMES).map("XAPI_{}".format), VALUES),
    VALUES,
    st.sampled_from(FILES),
)
def test_any_flags_and_variables_give_settings_or_one_usage_error(
    tmp_path: Path, flags: dict[str, str | None], environ: dict[str, str], token: str, data: bytes
) -> None:
    (tmp_path / "config.toml").write_bytes(data)
    secrets = {"XAPI_PASSWORD": "canary", "XAPI_TOKEN": f"canary{token}"}
    try:
        found = resolve(flags, {**environ, **secrets, "XAPI_CONFIG_DIR": str(tmp_path)}, may_create_profile=True)
    except UsageError as error:
        _check(error)
        assert "canary" not in str(error)
    else:
        assert found.storage in registry.names()
        assert found.timeout > 0
        assert found.base_url is None or found.base_url == urls.base_url(found.base_url)
        assert found.username is None or found.username.isprintable()
        assert found.token is None or re.fullmatch("[!-~]+", found.token)
        assert "canary" not in repr(found)


def _check(error: UsageError | OutputError, place: str = "") -> None:
    assert str(error) == printable(str(error))
    assert place in str(error)
