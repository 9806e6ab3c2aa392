"""How a study stands, what is wrong with its results, and which of them are forgotten.

status.py reports the state of all runs, partial_results.py makes tables of finished ones, doctor.py
finds damage, forget_runs.py forgets results, so that runs are trained again.
Imports results, plan and rooms below; command imports it.
"""
