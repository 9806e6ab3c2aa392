"""The study as a whole: what is done, and how its sessions differ."""
