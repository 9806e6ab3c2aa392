"""Losses and sums of each task under TensorFlow, one file under the task's name.

A file defines, for compiled functions:
    scaled(inputs): makes the model's inputs from those of a batch.
    loss(targets, logits): the mean loss of a batch, a float32 scalar.
    sums(targets, logits): a dictionary of sums over a batch: `items`, what is averaged
        over; `loss`; and what the task's scores are made of.
"""
