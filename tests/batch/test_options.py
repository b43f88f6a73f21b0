"""Which options of `xapi batch` exclude each other."""

from typing import Any

import pytest

from xapi_cli.batch.options import BatchOptions
from xapi_cli.cli import options
from xapi_cli.errors import UsageError

ROWS = options._rows(BatchOptions)  # noqa: SLF001 - those that the command has


@pytest.mark.parametrize("name", sorted(ROWS.keys() - {"merge", "input"}))
def test_merge_excludes_every_other_option(name: str) -> None:
    other: Any = not ROWS[name].default if isinstance(ROWS[name].default, bool) else ["1"]

    with pytest.raises(UsageError) as caught:
        BatchOptions(files=["a"], merge=True, **{name: other}).check()
    assert caught.value.message == f"--merge and {ROWS[name].row.names[0]} cannot be combined"


def test_merge_accepts_input() -> None:
    BatchOptions(files=["a"], merge=True, input="b").check()
