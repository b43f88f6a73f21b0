"""The option --paginate of `xapi request`, and those that need it."""

from typing import TYPE_CHECKING, Any, NamedTuple

from xapi_cli.errors import UsageError

if TYPE_CHECKING:
    from xapi_cli.request.plan import Plan


class PageOptions(NamedTuple):
    """How the items and the next page are found: *items* and *next_field* are names of fields."""

    items: str | None = None
    slurp: bool = False
    next_field: str | None = None
    max_pages: int | None = None


def prepare(
    plan: "Plan", paginate: bool, items: str | None, slurp: bool, next_field: str | None, max_pages: int | None
) -> None:
    """Let *plan* request all pages, and print their items."""
    given = {"--items": items, "--slurp": slurp or None, "--next": next_field, "--max-pages": max_pages}
    for name, value in given.items():
        if value is not None and not paginate:
            raise UsageError(f"{name} requires --paginate", hint="add --paginate")
        if value == "":
            raise UsageError(f"{name} is empty", hint="write the name of a field")
    plan.require_get("--paginate")
    plan.refuse("--paginate", include=plan.options.include, check_status=not plan.options.check_status)
    plan.prints_items = plan.filters_items = True
    options = PageOptions(items, slurp, next_field, max_pages)
    plan.exchange_by("--paginate", lambda sending: _request_pages(sending, options))


def _request_pages(sending: Any, options: PageOptions) -> None:
    from xapi_cli.features.pages.paginate import Pages

    if options.slurp and sending.output.filter is not None:
        hint = "omit --slurp, or use `jq -s` in a pipe"
        raise UsageError("--slurp cannot be combined with a filter", hint=hint)
    Pages(sending, options).run()
