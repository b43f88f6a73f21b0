"""The setting of storage `helper`: which values are valid."""

import os
import re

from xapi_cli.errors import UsageError
from xapi_cli.system.render import printable

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"


def program(text: str) -> str:
    """Return *text* if it is the name of a credential helper or an absolute path; raise UsageError otherwise."""
    if not re.fullmatch(_NAME, text) and not (os.path.isabs(text) and text.isprintable()):
        raise UsageError(
            f"{printable(text)!r} is not the name of a credential helper",
            hint="give NAME for the program docker-credential-NAME, or the absolute path of a program",
        )
    return text
