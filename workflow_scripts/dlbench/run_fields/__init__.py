"""The fields of a run, each declared once: name, type, default, bounds, meaning, label, column.

From a declaration come the field of runs.Run, the trainer's flag, the key of a matrix block in the
config's schema, the columns of tables, the name in figures and pages, and the page docs/config.md.
"""
