"""The program on Windows: the interpreter for Windows under Wine, and what differs from other platforms there."""
