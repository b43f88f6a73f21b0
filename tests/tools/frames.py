"""Prints how many Python frames of the package a call executes: with a stored token, and renewing it after a 401.

What imports execute and what builds the options is not counted. `--list` prints the calls of each function.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from inspect import CO_GENERATOR
from pathlib import Path
from typing import Any

from xapi_cli import app
from xapi_cli.features.sandbox import Sandbox

_PACKAGE = str(Path(app.__file__).parent) + os.sep
_OPTIONS = ("cli/options.py", "settings/table.py")


def counted() -> dict[str, int]:
    """Run xapi with the arguments of this process, and return the number of calls of each function."""
    calls: Counter[str] = Counter()
    generators: set[Any] = set()  # frames that are entered more than once
    importing = 0

    def profile(frame: Any, event: str, _: object) -> None:
        nonlocal importing
        code = frame.f_code
        name = code.co_filename.removeprefix(_PACKAGE)
        if code.co_name == "<module>":
            importing += (event == "call") - (event == "return")
        elif event == "call" and not importing and name != code.co_filename and frame not in generators:
            generators.update([frame] if code.co_flags & CO_GENERATOR else [])
            calls[f"{name}:{code.co_qualname}"] += not name.startswith(_OPTIONS)

    sys.setprofile(profile)
    app.execute()
    sys.setprofile(None)
    return calls


if sys.argv[1:2] == ["count"]:
    del sys.argv[1]
    print(json.dumps(counted()), file=sys.stderr)
else:
    with Sandbox() as sandbox, tempfile.TemporaryDirectory() as home:
        directories = {"XAPI_CONFIG_DIR": home, "XAPI_STATE_DIR": home, "HOME": home}
        environ = {**sandbox.settings, **directories, "XAPI_STORAGE": "file", "PATH": os.environ["PATH"]}
        command = [sys.executable, "-m", "tests.tools.frames", "count", "request", "/x-api/me"]
        for title in ("login", "stored token", "renewal after 401"):
            ended = subprocess.run(command, env=environ, capture_output=True, check=True)
            found = json.loads(ended.stderr.splitlines()[-1])
            print(f"{title:<20}{sum(found.values()):>6}")
            if "--list" in sys.argv:
                print(*(f"{count:>8} {each}" for each, count in found.items()), sep="\n")
            if title == "stored token":
                sandbox.revoke_tokens()
