"""The command line: commands, options, help, completion, and errors as exit codes."""
