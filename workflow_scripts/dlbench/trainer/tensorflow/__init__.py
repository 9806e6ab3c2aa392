"""Training with TensorFlow and Keras 3; models are those of keras/, the folder beside this one.

engine.py is what the trainer uses of it. Strategies and losses are files found by name.
"""
