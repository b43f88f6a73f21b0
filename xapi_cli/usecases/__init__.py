"""What each command does after its arguments have been parsed."""
