"""What a machine attains without a model, measured by the libraries that train.

Other rooms import collectives and rounds. Runs in the trainer's environment, so it needs the
standard library, NumPy and the framework. Imports trainer and common.
"""
