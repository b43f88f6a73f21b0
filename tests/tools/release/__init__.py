"""What a release consists of: the lock files, the bill of materials, the page of dependencies, and `make release`."""
