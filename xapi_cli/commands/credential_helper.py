"""Provide the token to Bazel and other programs.

Examples:

\b
  echo '{"uri": "https://api.example.com/x-api/me"}' |
    xapi credential-helper get
"""

from typing import TYPE_CHECKING

import typer

from xapi_cli.cli.options import ACCOUNT, NETWORK, MinTtl, settings_flags

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime


@settings_flags(*ACCOUNT, *NETWORK)
def get(ctx: typer.Context, *, min_ttl: MinTtl = None) -> None:
    """Print the Authorization header for a URL.

    Implements Bazel's credential-helper protocol. Reads a JSON object with
    the member `uri` from stdin, and prints a JSON object with `headers` and, if
    the expiry time is known, `expires`. Logs in first if necessary. If the origin of
    the URL differs from that of the base URL, exits with code 2.

    Examples:

    \b
      echo '{"uri": "https://api.example.com/x-api/me"}' |
        xapi credential-helper get
    """
    from xapi_cli.usecases import credential_helper

    runtime: Runtime = ctx.obj
    credential_helper.get(runtime, min_ttl=min_ttl)
