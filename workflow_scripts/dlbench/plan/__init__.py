"""What the workflow is to do: which runs, on which devices, by which commands; and how each stands.

planning makes a Plan from a config, which the rules use; run_command builds their commands;
standing determines what `dlbench status` shows. Other rooms may import all of it. It imports
analysis (for published numbers), starting, records, images, data, study and the rooms below.
"""
