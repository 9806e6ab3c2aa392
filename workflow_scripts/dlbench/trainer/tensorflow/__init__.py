"""Training with TensorFlow and Keras 3; models are those of keras/, the folder beside this one.

The trainer uses engine.py. Strategies are plugins.
"""
