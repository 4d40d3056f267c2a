"""How good the search for settings is, over response surfaces: what each candidate would show, as data.

`surfaces` holds them, `surface` plays them back with noise, `simulated` makes those of machines that we don't have,
`peers` are other ways to choose, `__main__` compares and prints.
"""
