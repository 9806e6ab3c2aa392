"""Building blocks of several models, one topic a module, on torch.nn; initial weights as in Keras.

A model's runs are redone when a module that it imports changes, so families of
models that share no more than a convolution have modules of their own.
"""
