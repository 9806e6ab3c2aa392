"""What a machine attains without a model, measured by the libraries that train.

Other rooms import measure_baselines and all_reduce. Runs in the trainer's environment, so it needs
the standard library, NumPy and the framework. Imports trainer and common.
"""

NOT_MEASURED = "not measured"  # how the reason of a baseline that failed begins
