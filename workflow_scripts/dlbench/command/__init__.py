"""The command dlbench: what users start, a file a command."""
