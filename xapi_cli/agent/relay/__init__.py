"""Relay the connections of agent calls."""
