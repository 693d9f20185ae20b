"""Prepares launches for the model from a shape.

Buffers have their full size, but only what the traced workgroups read takes memory. Each launch
also says how much work every workgroup has.
"""
