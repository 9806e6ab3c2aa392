"""What frameworks share that train with Keras 3: models, their layers, optimizers.

A model is described once, on Keras's backend-neutral layers; the engine of each framework runs it
on its own backend. This folder imports Keras and no backend, but for the normalisation that
TensorFlow does in one operation (layers/normalisation.py).
"""
