"""The commands of xapi: one file per command, imported when it is called."""
