"""dlbench: measure how well a machine trains neural networks.

The library behind the programs in `workflow_scripts/`. No module here imports
Snakemake; what runs in the trainer's environment needs the standard library,
NumPy and the framework only.
"""

__version__ = "0.1.0"


class Error(ValueError):
    """Bad input or a broken file; the message is for people and ends the program."""
