"""The table of servers: real programs on a made-up machine of 64 CPUs, stock and with what Raddle gives their container.

A row is data (row.py), the files of `rows` hold them; lab.py runs one, record.py keeps what was seen.
"""
