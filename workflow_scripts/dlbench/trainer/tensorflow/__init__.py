"""Training with TensorFlow and Keras: nothing outside this folder imports them.

Models, layers, tasks and strategies are files found by their name.
"""
