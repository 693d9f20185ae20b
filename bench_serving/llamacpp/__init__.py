"""llama.cpp beside an engine: a checkpoint as GGUF, and llama.cpp's own server over it."""
