"""Launches for the model, from a shape: buffers of full size of which only what samples read takes
memory, and how much each workgroup has to do."""
