"""What placement must do, written apart from the planner: machines, invariants, random cases.

docs/explanation/how-threads-are-placed.md is the specification that people read; tests/raddle/test_placement_table.py
holds the planner to it on the machines of `named`. `invariants` and `random_machines` serve the property tests and
`make fuzz`.
"""
