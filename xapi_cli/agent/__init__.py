"""Warm processes that run commands without the start of an interpreter."""
