"""What is to be run: the config, its schema, the runs of its matrix, repeats and learning gates.

config.study makes a Study from a config, runs.Run is one combination with its id. Other rooms may
import all of it. It imports trainer, machine, log and common. runs, contradictions,
log_patterns, other_trainers, goals and trainer_environments need the standard library alone.
"""
