"""One run, started and watched on this machine.

Imports records, images, schedulers, launchers, study, log and common.
"""
