"""What the workflow is to do: which runs, on which devices, by which commands.

Imports analysis for published numbers, starting, records, images, study and below.
"""
