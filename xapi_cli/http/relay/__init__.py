"""Use the connections that the agent lends."""
