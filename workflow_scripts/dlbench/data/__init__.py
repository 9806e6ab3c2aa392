"""Datasets: fetched, converted, verified and adopted.

Datasets and transports are files found by their name. Imports common.
"""
