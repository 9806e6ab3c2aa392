"""The command dlbench: what users start, a file for each group of commands."""
