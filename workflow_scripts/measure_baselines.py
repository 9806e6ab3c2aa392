"""Measure the speed of a machine without a model: collectives, or the operations of one device.

Started by start_baseline.py in the trainer's environment, once per process of the strategy.
"""

from dlbench.baselines import measure_baselines
from dlbench.common.command_line import run_program

if __name__ == "__main__":
    run_program(lambda: measure_baselines.main(__doc__))
