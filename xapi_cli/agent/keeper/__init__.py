"""Keep tokens in the memory of the agent."""
