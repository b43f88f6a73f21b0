"""The options --jq, --expect, --until and --every of `xapi request`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xapi_cli.errors import UsageError

if TYPE_CHECKING:
    from contextlib import ExitStack

    from xapi_cli.request.plan import Plan

_DEFAULT_INTERVAL = 2.0  # seconds


def prepare(plan: "Plan", jq: str | None, expect: Sequence[str], until: str | None, every: str | None) -> None:
    """Let *plan* filter the output with *jq*, check it with *expect*, and repeat the request until it meets *until*."""
    if plan.open_output is not None and (jq is not None or expect):
        option = "--expect" if jq is None else "--jq"
        raise UsageError(f"{option} cannot be combined with --continue", hint="omit --continue")
    if expect and plan.exchange is not None:
        what = f"--expect cannot be combined with {plan.exchange_option}"
        raise UsageError(what, hint=f"omit {plan.exchange_option}")
    if jq is not None:
        plan.prints_items = True
        plan.opens.append(lambda sending, stack: _open_filter(jq, sending, stack))
    if expect:
        plan.opens.append(lambda sending, stack: _open_expectations(expect, sending, stack))
    if until is not None:
        _wait(plan, until, every)
    elif every is not None:
        raise UsageError("--every requires --until", hint="add --until FILTER")


def _open_filter(text: str, sending: Any, stack: "ExitStack") -> None:
    from xapi_cli.features.jq.filter import Filter

    if sending.output.filter is not None:
        hint = "filter with `jq`, and let `xapi each` make the table"
        raise UsageError("--jq cannot be combined with --csv", hint=hint)
    is_shown = sending.context.terminal.stdout_is_terminal and sending.file is None
    found = Filter(
        text,
        sending.context.environ,
        for_items=sending.plan.filters_items,
        encode="tojson" if is_shown else "tostring",
    )
    stack.callback(found.close)
    sending.output.filter = found


def _open_expectations(texts: Sequence[str], sending: Any, stack: "ExitStack") -> None:
    from xapi_cli.features.jq.expect import Expectations

    expectations = Expectations(texts, sending.context.environ, stack)
    sending.output.record = expectations.recorded
    sending.checks.append(expectations.check)


def _wait(plan: "Plan", text: str, every: str | None) -> None:
    from xapi_cli.features.jq import until
    from xapi_cli.features.jq.filter import Filter
    from xapi_cli.settings import values

    seconds = _DEFAULT_INTERVAL if every is None else values.seconds(every, name="--every")
    if seconds <= 0:
        raise UsageError("--every must be greater than 0", hint="write a time such as 2s")
    plan.require_get("--until")
    plan.context.default_max_time = until.DEFAULT_LIMIT
    conditions: list[Filter] = []

    def open_condition(sending: Any, stack: "ExitStack") -> None:
        conditions.append(Filter(text, sending.context.environ, option="--until", encode="tojson"))
        stack.callback(conditions[0].close)

    plan.opens.append(open_condition)
    plan.exchange_by("--until", lambda sending: until.poll(sending, conditions[0], seconds))
