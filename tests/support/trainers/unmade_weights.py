"""Keras models without weights, for their shapes only: weights would take gigabytes and minutes."""

import contextlib
import functools

import keras

from dlbench.common import plugins


@contextlib.contextmanager
def unmade_weights():
    """A `with` block in which models are built without weights."""
    with keras.StatelessScope(initialize_variables=False):
        yield
    # Else Keras makes them all as soon as it follows symbols through a layer of another model.
    keras.utils.clear_session(free_memory=False)


@functools.cache
def built(name, **how):
    """(a model of ours as it is published, the shape of its items)."""
    native = plugins.load("keras/models", name)
    with unmade_weights():
        return native.build(native.INPUT_SHAPE, native.CLASSES, **how), native.INPUT_SHAPE
