"""Prints how many Python frames of the package a call executes: with a stored token, and renewing it after a 401.

`python -m tests.tools.frames` counts what is called, not what imports execute, nor the building of options. With
`--list`, it prints the number of calls of each function.
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

from xapi_cli.features.sandbox import Sandbox

_PACKAGE = str(Path(__file__).parents[2] / "xapi_cli") + os.sep
_OPTIONS = ("cli/options.py", "settings/table.py")


def counted() -> None:
    """Run xapi with the arguments of this process, and write the calls of each function to stderr."""
    from xapi_cli import app

    calls: Counter[str] = Counter()
    generators: set[Any] = set()  # frames that are entered more than once
    importing = 0

    def profile(frame: Any, event: str, _: object) -> None:
        nonlocal importing
        code = frame.f_code
        if code.co_name == "<module>":
            importing += (event == "call") - (event == "return")
        elif event == "call" and not importing and code.co_filename.startswith(_PACKAGE) and frame not in generators:
            generators.update([frame] if code.co_flags & CO_GENERATOR else [])
            calls[f"{code.co_filename.removeprefix(_PACKAGE)}:{code.co_qualname}"] += 1

    sys.setprofile(profile)
    code = app.execute()
    sys.setprofile(None)
    print(json.dumps({name: count for name, count in calls.items() if not name.startswith(_OPTIONS)}), file=sys.stderr)
    sys.exit(code)


def main() -> None:
    """Print the numbers of frames."""
    with Sandbox() as sandbox, tempfile.TemporaryDirectory() as home:
        directories = {"XAPI_CONFIG_DIR": home, "XAPI_STATE_DIR": home, "HOME": home}
        environ = {**sandbox.settings, **directories, "XAPI_STORAGE": "file", "PATH": os.environ["PATH"]}
        command = [sys.executable, "-m", "tests.tools.frames", "count", "request", "/x-api/me"]
        for name in ("login", "stored token", "renewal after 401"):
            if name == "renewal after 401":
                sandbox.revoke_tokens()
            ended = subprocess.run(command, env=environ, capture_output=True, check=True)
            calls = json.loads(ended.stderr.splitlines()[-1])
            print(f"{name:<20}{sum(calls.values()):>6}")
            if "--list" in sys.argv:
                print(*(f"{count:>8} {each}" for each, count in calls.items()), sep="\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["count"]:
        del sys.argv[1]
        counted()
    else:
        main()
