"""Published figures of others' kernels on an MI355X, in bf16. We measured none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hk_backend.lab.bench.gemm.published import BF16_SQUARES
from hk_backend.lab.timing.workloads import attention_prefill, gemm
from hk_backend.lab.timing.workloads.attention_prefill.shape import batch
from hk_backend.lab.timing.workloads.gemm import square

HIPKITTENS = "HipKittens' repository (analysis/attn/fwd, analysis/bf16_gemm; November 2025)"
OPUS = "OPUS: opus_attn in carlushuang/gcnasm (September 2026)"
AITER = "AITER's own table of its assembly kernel"
FLYDSL = "FlyDSL's pull request 919 (September 2026)"
SIZES = (1024, 2048, 4096, 8192, 16384)

Rates = tuple[int, ...]
"""TFLOP/s at each of a panel's sizes, or at the first ones; causal work counts half."""


class Panel(NamedTuple):
    """One problem at growing sizes, with the published rates of others' kernels.

    `shapes`: HK's shapes of the same work, by size. `rates`: published rates, by the kernel's name;
    `source`: who published them. `hipkittens_modelled`: rates of HipKittens' kernel by the timing
    model, as the timing model has it; nothing else here is modelled.
    """

    name: str
    operator: str
    facts: Mapping[str, str | int]
    shapes: Mapping[int, attention_prefill.Shape | gemm.Shape]
    source: str
    rates: Mapping[str, Rates]
    hipkittens_modelled: Rates = ()


def _attention(
    name: str,
    head_size: int,
    heads: str,
    source: str,
    causal: bool = True,
    modelled: Rates = (),
    sizes: Sequence[int] = SIZES,
    **rates: Rates,
) -> Panel:
    """A panel of attention; `heads`, as in `b16 64/8`: 16 requests, 64 query heads, 8 KV heads."""
    size, _, counts = heads.partition(" ")
    query_heads, kv_heads = map(int, counts.split("/"))
    lengths = sizes[: max(map(len, rates.values()))]
    requests = int(size.removeprefix("b"))
    shapes = {n: batch(requests, n, query_heads, kv_heads, causal) for n in lengths}
    facts: dict[str, str | int] = {"dtype": "bf16", "head_size": head_size}
    return Panel(
        f"attention {name} {heads}", "attention_prefill", facts, shapes, source,
        {peer.replace("_", " "): figures for peer, figures in rates.items()}, modelled,
    )  # fmt: skip


PANELS = (
    _attention(
        "d128 causal", 128, "b16 64/8", f"{HIPKITTENS}; {OPUS}",
        HipKittens=(718, 933, 1085, 1216, 1259),
        modelled=(689, 918, 1103, 1227, 1297),
        AITER=(715, 941, 1101, 1205, 1246),
        OPUS=(721, 930, 1118, 1207, 1252),
        CK=(603, 701, 813, 866, 889),
        Triton=(157, 249, 368, 594, 794),
        PyTorch=(159, 353, 499, 705, 789),
    ),
    _attention(
        "d128 full", 128, "b16 64/8", f"{HIPKITTENS}; {OPUS}", causal=False,
        HipKittens=(1000, 1154, 1262, 1298, 1326),
        modelled=(1044, 1196, 1285, 1333, 1359),
        AITER=(1032, 1152, 1231, 1281, 1291),
        OPUS=(1020, 1178, 1227, 1265, 1275),
        CK=(788, 826, 877, 896, 896),
        Triton=(828, 906, 968, 994, 990),
        PyTorch=(468, 625, 610, 841, 879),
    ),
    _attention(
        "d64 causal", 64, "b16 64/8", HIPKITTENS,
        HipKittens=(525, 722, 821, 890, 941),
        modelled=(506, 665, 794, 879, 926),
        AITER=(317, 366, 392, 531, 633),
        CK=(543, 669, 736, 784, 804),
        Triton=(355, 450, 492, 656, 746),
        PyTorch=(226, 383, 509, 609, 667),
    ),
    _attention(
        "d64 full", 64, "b16 64/8", HIPKITTENS, causal=False,
        HipKittens=(770, 898, 934, 961, 979),
        modelled=(786, 886, 941, 971, 986),
        AITER=(679, 746, 782, 802, 806),
        CK=(727, 778, 795, 805, 806),
        Triton=(736, 802, 858, 865, 861),
        PyTorch=(522, 669, 680, 687, 704),
    ),
    _attention(
        "d128 causal", 128, "b16 16/16", HIPKITTENS,
        HipKittens=(634, 861, 1048, 1146, 1188),
        modelled=(595, 840, 1057, 1205, 1286),
        AITER=(555, 876, 1069, 1173, 1247),
        CK=(495, 611, 755, 844, 903),
        Triton=(333, 435, 482, 653, 750),
        PyTorch=(55, 246, 422, 630, 762),
    ),
    _attention(
        "d128 full", 128, "b16 16/16", HIPKITTENS, causal=False,
        HipKittens=(953, 1148, 1228, 1283, 1304),
        modelled=(1011, 1185, 1282, 1333, 1358),
        AITER=(828, 1085, 1211, 1259, 1283),
        CK=(761, 733, 810, 894, 908),
        Triton=(687, 839, 923, 974, 988),
        PyTorch=(453, 579, 594, 822, 873),
    ),
    # PyTorch's rates are left out: the source repeats those of 64/8
    _attention(
        "d64 causal", 64, "b16 16/16", HIPKITTENS,
        HipKittens=(420, 630, 796, 874, 862),
        modelled=(415, 600, 757, 860, 917),
        AITER=(229, 311, 344, 493, 596),
        CK=(419, 602, 676, 756, 800),
        Triton=(285, 372, 444, 610, 697),
    ),
    _attention(
        "d64 full", 64, "b16 16/16", HIPKITTENS, causal=False,
        HipKittens=(739, 897, 941, 954, 969),
        modelled=(739, 867, 934, 968, 985),
        AITER=(483, 679, 720, 747, 777),
        CK=(671, 766, 772, 762, 822),
        Triton=(604, 732, 817, 854, 865),
    ),
    _attention(
        "d128 causal", 128, "b8 64/8", AITER, AITER_assembly=(627, 963, 1190, 1312)
    ),
    _attention(
        "d128 full", 128, "b8 64/8", AITER, causal=False, AITER_assembly=(980, 1251, 1362, 1323)
    ),
    _attention(
        "d128 causal", 128, "b4 32/8", AITER, AITER_assembly=(721, 810, 1130, 1319)
    ),
    _attention(
        "d128 causal", 128, "b1 32/8", AITER, AITER_assembly=(233, 577, 949, 1248)
    ),
    _attention(
        "d128 full", 128, "b1 64/64", FLYDSL, causal=False, sizes=(16384, 65536, 131072),
        FlyDSL=(1318, 1329, 1327), AITER_assembly=(1252, 1256, 1224),
    ),
    Panel(
        "gemm bf16", "gemm", {"a": "bf16", "b": "bf16"}, {n: square(n) for n in SIZES}, HIPKITTENS,
        {
            "HipKittens": (139, 665, 1413, 1610, 1571),
            **BF16_SQUARES,
            "CK": (189, 263, 931, 504, 478),
            "Triton": (59, 271, 934, 1091, 1086),
            "PyTorch": (57, 328, 1139, 1521, 1560),
        },
        (152, 754, 1382, 1499, 1517),
    ),
)  # fmt: skip
