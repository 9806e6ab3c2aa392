"""Readers of the energy counters of a node, one file each; found by their names, in their order.

A file defines ROOT, the folder of the counters; SOURCE, its name in `..._energy_source`; MISSING,
why a node may have none ("": nothing is said); and
    counters(root): yields an energy.Counter for each; raises OSError or ValueError
"""
