"""Training with TensorFlow and Keras 3: nothing outside this folder imports them.

engine.py is what the trainer uses of it. Models, tasks and strategies are files found by name;
layers are what models share.
"""
