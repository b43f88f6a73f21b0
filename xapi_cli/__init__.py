"""Tokens for the experimental API, and requests that carry them."""

__version__ = "0.1.0"
