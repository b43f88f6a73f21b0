"""Storage `agent`: records in the memory of the keeper, a process of the agent, and nowhere else."""
