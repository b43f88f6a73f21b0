"""Operating system services: terminal, files, locks, signals."""
