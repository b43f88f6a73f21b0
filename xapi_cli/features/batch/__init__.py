"""Concurrent calls, each with one line of input and one line of output."""
