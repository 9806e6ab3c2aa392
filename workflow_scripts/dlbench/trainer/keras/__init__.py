"""Code that is shared by frameworks with Keras 3: models, their layers, optimizers.

A model is defined once, with Keras's backend-neutral layers; the engine of each framework runs it
on its own backend. This folder imports Keras and no backend, except for the normalisation that
TensorFlow has as one fused operation (convolution.py).
"""
