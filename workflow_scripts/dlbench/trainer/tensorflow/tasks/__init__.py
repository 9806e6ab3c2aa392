"""Tasks, one file each: what a model learns, how its loss and its scores are computed.

A task file defines:
    KIND: the kind of dataset it needs: image, mask or text.
    SCORES: names of its scores beside the loss.
    scaled(inputs): what the model gets of a batch of inputs.
    logits_shape(input_shape, classes): shape of what the model gives of one item.
    loss(targets, logits): the mean loss of a batch, a float32 scalar.
    sums(targets, logits): a dictionary of sums over a batch: `items`, what is averaged
        over; `loss`; and what its scores are made of.
    scores(sums): the scores of an evaluation from the sums over all batches.
    synthetic(random, batch, input_shape, classes): (inputs, targets), NumPy arrays.
Called in compiled functions, but for `scores` and `synthetic`.
"""
