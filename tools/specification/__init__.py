"""What placement must do, written apart from the planner: machines, a table, invariants, random cases.

`cases` is the specification that people read: docs/explanation/how-threads-are-placed.md is made from it and
tests/raddle/test_placement_table.py holds the planner to it. `invariants` and `random_machines` serve the property
tests and `make fuzz`.
"""
