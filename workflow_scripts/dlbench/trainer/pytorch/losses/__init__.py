"""Losses and sums of each task under PyTorch, one file under the task's name.

A file defines:
    scaled(inputs): makes the model's inputs from those of a batch, a tensor or a NumPy array; the
        axes after the first may be in any order.
    loss(targets, logits): the mean loss of a batch, a float32 scalar.
    sums(targets, logits): a dictionary of sums over a batch: `items`, what is averaged
        over; `loss`; and what the task's scores are made of.
Targets are whole numbers of int64, or masks of uint8 with channels first, as the logits.
"""
