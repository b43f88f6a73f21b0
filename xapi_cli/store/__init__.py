"""Stores for the record of an account."""
