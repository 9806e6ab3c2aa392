"""The trainer of one run: train.py and all that it executes.

Each framework has a folder, tensorflow/, jax/ and pytorch/, with an engine behind the interface in
engine.py. The engine is a plugin found by the run's `framework`; so are strategies, as
`jax/strategies` (common/plugins.py). So a new framework is a new folder.
Frameworks share tasks.py, what is learned; keras/, the models of frameworks that train
with Keras; and reading/, the items of a run, with a reader for frameworks without one for TFRecord.
Other rooms import checkpoints (the exit code, the folder), copies and engine (names of
frameworks); the room imports log, machine and common, and no package except NumPy.
"""
