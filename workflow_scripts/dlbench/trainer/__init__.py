"""What trains one run: train.py and all that it executes.

What knows a framework lies in a folder of its own, today tensorflow/. Imports log, machine and
common, and nothing that only the workflow's environment has.
"""
