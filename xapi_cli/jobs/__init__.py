"""What a command does, once its words are understood: a job for each verb that needs more than one step."""
