"""How a study stands, what is wrong with its results, and which of them are forgotten.

status.py is the state of all runs, partial_results.py tables of those that are done, doctor.py
finds and repairs damage, forget_runs.py has runs trained again.
Imports figures, results, plan and rooms below; no room imports it.
"""
