"""What was measured on this machine, kept between starts in a folder of files.

machine.py   what a file holds for: processor, versions, threads
folder.py    the folder: reads, merges and writes its files
"""
