"""The operating system: terminal, files, locks, signals."""
