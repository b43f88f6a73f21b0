"""Start lines and headers in color, for --include and --verbose on a terminal."""

from xapi_cli.system.style import Style, of_status


def colored_request_line(line: str, style: Style) -> str:
    """Return the request *line* in color."""
    method, _, rest = line.partition(" ")
    target, _, version = rest.rpartition(" ")
    return f"{style('good', method)} {style('strong', target)} {_version(version, style)}"


def colored_status_line(line: str, style: Style) -> str:
    """Return the status *line* in color."""
    version, _, rest = line.partition(" ")
    status = rest[:3]
    return f"{_version(version, style)} {style(of_status(int(status)), rest) if status.isdecimal() else rest}"


def colored_header(line: str, style: Style) -> str:
    """Return the header *line* in color."""
    name, colon, value = line.partition(":")
    return f"{style('name', name)}{colon}{value}" if colon else line


def _version(text: str, style: Style) -> str:
    name, slash, number = text.partition("/")
    return f"{style('protocol', name)}{slash}{style('protocol', number)}"
