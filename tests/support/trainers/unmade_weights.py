"""Keras models without weights, for their shapes only: weights would take gigabytes and minutes."""

import contextlib

import keras


@contextlib.contextmanager
def unmade_weights():
    """A `with` block in which models are built without weights."""
    with keras.StatelessScope(initialize_variables=False):
        yield
    # Else Keras makes them all as soon as it follows symbols through a layer of another model.
    keras.utils.clear_session(free_memory=False)
