"""What is written beside a run: readings of devices, costs of jobs."""
