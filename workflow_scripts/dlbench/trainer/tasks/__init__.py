"""Tasks, one file each: what a model learns and how it is scored, in any framework.

A task file defines:
    KIND: the kind of dataset it needs: image, mask or text.
    SCORES: names of its scores beside the loss.
    logits_shape(input_shape, classes): shape of the model's output for one item.
    scores(sums): the scores of an evaluation from the sums over all batches.
    reader(): for the kind text, the module that cuts the text into windows.
    synthetic(random, batch, input_shape, classes): (inputs, targets), NumPy arrays.
The loss and the sums are computed on the devices: each framework has them under the task's name in
its folder `losses`.
"""
