"""Makes the installed program in build/macos look as on macOS; the scripts in `imitation` also hide /proc."""

import os
import shutil
import sys
from pathlib import Path

_HERE = Path(__file__).parent
_SCRIPT = """#!/bin/sh
exec {unshare} --mount sh -c 'mount -n -t tmpfs none /proc && exec "$0" "$@"' {program} "$@"
"""


def main(environment: Path) -> None:
    """Install the imitation in the virtual *environment*, and write the scripts."""
    packages = next(environment.glob("lib/python3.*/site-packages"))
    shutil.copy(_HERE / "imitation.py", packages / "darwin_imitation.py")
    shutil.copy(_HERE / "keychain.py", packages / "darwin_keychain.py")
    (packages / "darwin_imitation.pth").write_text(
        "import os; os.path.isdir('/proc/self') or __import__('darwin_imitation')\n"
    )
    unshare = "unshare" if os.geteuid() == 0 else "unshare --user --map-current-user --keep-caps"
    scripts = environment / "imitation"
    scripts.mkdir(exist_ok=True)
    for name in ("xapi", "python"):
        (scripts / name).write_text(_SCRIPT.format(unshare=unshare, program=environment / "bin" / name))
        (scripts / name).chmod(0o755)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
