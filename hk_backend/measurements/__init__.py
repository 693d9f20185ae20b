"""Measurements of this machine, kept between starts in a folder of files.

machine.py   the machine that a file holds for: processor, versions, threads
folder.py    the folder: reads, merges and writes its files
launches.py  the timed launches of linear layers on a GPU
"""
