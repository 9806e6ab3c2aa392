"""What the workflow is to do: which runs, on which devices, by which commands; and how each stands.

planning makes a Plan from a config, the rules ask the Plan, run_command gives their commands,
standing is what status.py shows. Others may import all of it. It imports analysis (for published
numbers), starting, records, images, data, study and the rooms below.
"""
