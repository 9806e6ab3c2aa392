"""Building blocks of several models, one topic a module, on Keras 3's backend-neutral layers.

A model's runs are redone when a module that it imports changes, so families of
models that share no more than a convolution have modules of their own.
"""
