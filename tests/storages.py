"""What the tests of storages share."""

Env = dict[str, str | None]
ME = ("request", "/x-api/me")
