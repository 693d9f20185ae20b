"""Mutants of the decode kernels: every wait, barrier and release that is needed is noticed."""

from __future__ import annotations

from hk_backend.kernels import catalogue
from tests.kernels.attention_decode_mutants import judged
from tests.kernels.cover import proved
from tests.kernels.mutants import survivors

