"""The clock beside hardware: thread traces of a GPU, replayed instruction by instruction.

A thread trace (ATT) is what `rocprofv3 --att` records and its decoder writes for AMD's viewer: the
clock at which each instruction of each wave of one CU issued.

`dispatch.py`: reads the folder of one dispatch.

`assembly.py`: makes a code object of its listing.

`assumed.py`: what the trace does not tell of instructions. `residence.py`: where a launch's data
lie, by sizes in the listing (`descriptors.py`) and by how soon loads come back (`latencies.py`).

`replay.py`: hardware and model side by side; `errors.py` compares them, `picture.py` draws them.

`extraction.py`: costs of instructions. `mi350x.json`: those of public traces of an MI350X.
"""
