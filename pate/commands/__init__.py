"""The commands: arguments in, messages and exit codes out."""
