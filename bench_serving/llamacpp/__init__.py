"""llama.cpp for comparisons: converts a checkpoint to GGUF, and runs llama.cpp's own server."""
