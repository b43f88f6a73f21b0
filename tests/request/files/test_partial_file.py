"""PartialFile in a directory that cannot be listed."""

from pathlib import Path
from typing import Any

import pytest

from xapi_cli.http.messages import Headers
from xapi_cli.request.files import partial_file
from xapi_cli.request.files.partial_file import PartialFile
from xapi_cli.system.safe_paths import OpenDirectory


def test_a_directory_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user root, who may run the tests, can list any directory."""
    listings: list[Any] = []

    def names(self: OpenDirectory) -> list[str]:
        listings.append(self)
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(OpenDirectory, "names", names)
    monkeypatch.setattr(partial_file, "_RECORD_INTERVAL", 0)
    with PartialFile(str(tmp_path / "out"), "source") as file:
        file.begin(200, Headers([(b"ETag", b'"v1"'), (b"Content-Length", b"3")]), "http://127.0.0.1/")
        for data in (b"a", b"b", b"c"):
            file.write(data)
        file.commit()

    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_bytes() == b"abc"
    assert len(listings) == 1
