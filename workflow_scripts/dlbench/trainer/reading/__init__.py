"""Items of converted datasets without TensorFlow: the same ones in the same order as its pipelines.

For frameworks that bring no reader of TFRecords. tests/trainer/test_reading.py compares them with
tensorflow/pipelines.py, item by item.
"""
