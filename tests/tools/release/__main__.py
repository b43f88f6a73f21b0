"""`make release`: build and check the files of a release."""

import sys
import tempfile
from pathlib import Path

from tests.tools.release.build import release, summary
from tests.tools.release.checks import Refused, version_of


def main(root: Path) -> int:
    """Build a release of the tree in *root*, and return the exit code."""
    try:
        with tempfile.TemporaryDirectory(prefix="xapi-release-") as directory:
            files = release(root, Path(directory))
    except Refused as refused:
        print(f"release: error: {refused}", file=sys.stderr)
        return 1
    print(summary(files, version_of(root)))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if sys.argv[1:] else ".").resolve()))
