"""Measurements of this machine, kept between starts in a folder of files.

`machine.py` describes the machine that a file applies to: processor, versions, threads.
`folder.py` reads, merges and writes the folder's files.
`launches.py` chooses launches of linear layers on a GPU by their measured times.
"""
