"""table_columns: every table has its columns under its name."""

from dlbench.tables import cells, table_columns


def test_the_names_of_the_tables_are_those_that_have_columns():
    assert tuple(table_columns.STUDY_TABLES) == cells.OF_STUDY
    assert tuple(table_columns.RUN_TABLES) == cells.OF_RUN
    assert tuple(table_columns.MACHINE_TABLES) == cells.OF_MACHINES
