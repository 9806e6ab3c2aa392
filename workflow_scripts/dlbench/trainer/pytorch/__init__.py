"""Training with PyTorch, without Keras; the models are those of the folder `models`.

The trainer uses engine.py. Strategies and models are plugins.
"""
