"""The file of `-o`: written completely or not at all."""

from typing import TYPE_CHECKING

from xapi_cli.system.files import Replacement, write_error

if TYPE_CHECKING:
    from xapi_cli.http.messages import Headers


class OutputFile:
    """The file *name*, which `commit` replaces with what was written; a target that is not a regular file is written.

    The methods raise OutputError, which names the file.
    """

    count = 0  # bytes of an earlier download that the file starts with
    kept = advice = ""  # what is kept if the download ends now, and how to go on

    def __init__(self, name: str) -> None:
        self.name = name
        self._new = Replacement(name)

    @staticmethod
    def accepts(status: int) -> bool:
        """Return whether the file receives the body of a response with *status*: always."""
        return True

    def begin(self, status: int, fields: "Headers") -> None:
        """Do nothing before the body of a response: the file is empty."""

    def open(self) -> None:
        """Open the file; a failure needs no cleanup."""
        try:
            self._new.open()
        except (OSError, ValueError) as error:
            raise write_error(self.name, error) from error

    def write(self, data: bytes) -> None:
        """Append *data* to the file."""
        try:
            self._new.write(data)
        except OSError as error:
            raise write_error(self.name, error) from error

    def commit(self) -> None:
        """Replace the content of the file with the data written."""
        try:
            self._new.commit()
        except OSError as error:
            raise write_error(self.name, error) from error

    def close(self) -> None:
        """Close the file; without `commit`, nothing has changed."""
        self._new.close()
