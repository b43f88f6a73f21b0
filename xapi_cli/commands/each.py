"""`xapi each`: one request for each row of a list."""

from xapi_cli.features.each.command import each

__all__ = ["each"]
