"""What trains one run: train.py and all that it executes.

What knows a framework lies in one folder for each, today tensorflow/, behind the interface in
engine.py. Its engine is found by the run's `framework`, its models, tasks and strategies as
`tensorflow/models` and so on (common/plugins.py). So another framework is one folder more here.
Other rooms import checkpoints (the exit code, the folder), copies and engine (names of
frameworks); the room imports log, machine and common, and no package beside NumPy.
"""
