"""Every ALU instruction against the ISA guide's own pseudo-code, executed (pcode/)."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hk_backend import _emulator
from tests.emulator import pcode
from tests.emulator.lanes import ALL, EXEC, IEEE, LANES, MODE, VCC, Wave
from tests.emulator.values import edges

tinygrad = pytest.importorskip(
    "tinygrad.runtime.autogen.amd.cdna.str_pcode", reason="tinygrad's wheel has the pseudo-code"
)

CODE: dict[str, str] = {}
GROUP: dict[str, str] = {}
for _op, _text in tinygrad.PCODE.items():
    _name = re.sub(r"_e(32|64)$", "", _op.name.lower())
    _group = type(_op).__name__.removesuffix("Op")
    if _name.startswith(("v_", "s_")) and _group not in ("SMEM", "SOPP"):
        CODE[_name] = _text
        GROUP.setdefault(_name, _group)

# Stated elsewhere: transcendental functions and what is approximate (test_semantics_math), parts of
# numbers and division, whose pseudo-code is wrong (test_semantics_parts), formats
# (test_semantics_convert), lanes and registers (test_semantics_lanes), matrices
# (test_semantics_matrix, test_semantics_sparse), VGPR indexing (test_vgpr_indexing).
ELSEWHERE = re.compile(
    r"v_(exp|log|rcp|rcp_iflag|rsq|sin|cos)_f|v_mfma|v_smfmac|v_(read|write)|v_permlane|v_swap"
    r"|v_cvt_scalef32|v_cvt_(pk_)?(fp8|bf8)|v_cvt_(pk_)?f32_(fp8|bf8)|v_cvt_pk_bf16|v_cvt_pkrtz|v_mad_mix"
    r"|s_set_gpr_idx|v_cvt_pk_f16|v_cvt_.*norm|v_frexp|v_cvt_off|v_cvt_pk_u8|v_bitop3"
    r"|v_rndne|v_sqrt_f32|s_.etreg|v_cvt_rpi|v_fract|v_dot2c?_f32|v_div_"
)


def types_of(text: str, source: int) -> str:
    """How the code reads a source: the type of its values, "pk_f16" of packed ones."""
    found = re.findall(rf"\bS{source}(\[[^\]]*\])?\.?([fuib]\d+)?", text)
    kinds = [kind for _, kind in found if kind]
    ranges = [r for r, _ in found if r]
    if not found:
        return ""
    kind = kinds[0] if kinds else "b32"
    if "D0 = { S1[" in text:  # s_pack
        return kind
    if ranges and kind in ("f16", "i16", "u16") and any("31" in r for r in ranges):
        return "pk_" + kind
    if any("63" in r for r in ranges):
        return "pk_" + kind
    return "b32" if kind in ("i24", "u24", "i8", "i16x2") else kind


COMPARED = sorted(
    name
    for name in CODE
    if _emulator.has_semantics(name, "gfx950")
    and not ELSEWHERE.match(name)
    and "SIMM" not in CODE[name]
)


def lane_values(kind: str, rng: np.random.Generator) -> np.ndarray:
    if kind.startswith("pk_"):
        part = kind[3:]
        low, high = edges(part, LANES, rng), edges(part, LANES, rng)
        width = int(part[1:])
        return low | high << np.uint64(width)
    return edges(kind, LANES, rng)


def is_wide(kind: str) -> bool:
    return kind.endswith("64") or kind == "pk_f32"


def same(actual: int, expected: int, kind: str) -> bool:
    """Whether bits are equal; any quiet NaN will do for a NaN."""
    if actual == expected:
        return True
    if kind.startswith("pk_f"):
        width = int(kind[4:])
        mask = (1 << width) - 1
        return all(same(actual >> s & mask, expected >> s & mask, kind[3:]) for s in (0, width))
    if kind in ("f16", "f32", "f64"):
        a, e = (pcode.Value("f", int(kind[1:]), x) for x in (actual, expected))
        return a.nan() and e.nan() and a.quiet()
    return False


def result_type(name: str, text: str) -> str:
    if name.endswith("_f16") and not name.startswith("v_pk") and "CMP" not in text:
        return "f16"
    if name.startswith("v_ashr_pk"):
        return "u16"
    found = re.findall(r"\b(?:D0|D|tmp)(\[[^\]]*\])?\.?([fuib]\d+)?\s*[-+]?=", text)
    for where, kind in found:
        if kind and where:
            return "pk_" + kind
    kinds = [kind for _, kind in found if kind]
    return kinds[-1] if kinds else "b32"


VECTOR = [name for name in COMPARED if name.startswith("v_")]


@pytest.mark.parametrize(
    ("name", "mode"),
    [(name, MODE) for name in VECTOR]
    # the pseudo-code of these looks at IEEE
    + [(name, MODE & ~IEEE) for name in VECTOR if re.match(r"v_(pk_)?(min|max|med)3?_f", name)],
)
def test_vector_instruction(name: str, mode: int) -> None:
    text = CODE[name]
    ieee = bool(mode & IEEE)
    rng = np.random.default_rng(sum(name.encode()))
    kinds = [k for k in (types_of(text, i) for i in range(3)) if k]
    if name.startswith("v_cmp") and not kinds:  # never or always
        kinds = [name.rsplit("_", 1)[1]] * 2
    result = result_type(name, text)
    is_mask = name.startswith("v_cmp")
    accumulates = bool(re.search(r"D0(\[[^\]]*\])?\.[fiu]\d+[,)]|tmp = D0|\+ D0\.", text))
    carries_out = "VCC.u64[laneId] =" in text or "D1." in text
    carries_in = "VCC" in re.sub(r"VCC(\.u64\[laneId\])? = ", "", re.sub(r"//[^\n]*", "", text))
    for _ in range(2):
        sources = [lane_values(kind, rng) for kind in kinds]
        old = lane_values(result if result != "b32" else "u32", rng)
        vcc = int(rng.integers(0, 1 << 63, dtype=np.uint64)) * 2 + 1
        dwords = 2 if is_wide(result) else 1
        arguments = [
            s if is_wide(k) else s.astype(np.uint32) for s, k in zip(sources, kinds, strict=True)
        ]
        if accumulates:
            arguments.append(old if dwords == 2 else old.astype(np.uint32))
        wave = Wave(mode=mode, vcc=vcc, destination=old if dwords == 2 else old.astype(np.uint32))
        out = wave.vector(
            name,
            *arguments,
            dwords=dwords,
            masks=(VCC,) if carries_in else (),
            mask_destination=30 if carries_out else None,
            result_is_mask=is_mask,
            op_sel_hi=7,
        )
        for lane in range(LANES):
            state = pcode.State(lane=lane, vcc=vcc, ieee=ieee, d0=0 if is_mask else int(old[lane]))
            state.sources = {f"S{i}": int(s[lane]) for i, s in enumerate(sources)}
            pcode.execute(text, state, CODE)
            shown = [hex(int(s[lane])) for s in sources], hex(int(old[lane]))
            if is_mask:
                assert out.pair(20) >> lane & 1 == state.d0 >> lane & 1, shown
                if "cmpx" in name:
                    assert out.pair(EXEC) >> lane & 1 == state.d0 >> lane & 1, shown
                continue
            width = 64 if dwords == 2 else 16 if result.endswith("16") and result[0] != "p" else 32
            actual = int(out.u64[lane] if dwords == 2 else out.u32[lane]) & ((1 << width) - 1)
            expected = state.d0 & ((1 << width) - 1)
            assert same(actual, expected, result), (*shown, hex(actual), hex(expected))
            if carries_out:
                per_lane = lane if "laneId" in text else 0
                bit = state.d1 & 1 if "D1." in text else state.vcc >> per_lane & 1
                assert out.pair(30) >> lane & 1 == bit, shown


@pytest.mark.parametrize("name", [n for n in COMPARED if n.startswith("s_")])
def test_scalar_instruction(name: str) -> None:
    text = CODE[name]
    rng = np.random.default_rng(sum(name.encode()))
    kinds = [k for k in (types_of(text, i) for i in range(3)) if k]
    wide = tuple(kind.endswith("64") for kind in kinds)
    result = re.findall(r"\bD0\.?([iub]\d+)?", text)
    dwords = 2 if any(kind.endswith("64") for kind in result) and "bcnt" not in name else 1
    sopk = GROUP[name] == "SOPK"
    for _ in range(60):
        sources = [int(edges(kind, 1, rng)[0]) for kind in kinds]
        old = [int(x) for x in edges("u32", 2, rng)]
        exec_mask, scc = int(edges("u64", 1, rng)[0]), bool(rng.integers(2))
        # the last source of SOPK is the immediate
        fields = {"simm": (sources[-1] & 0xFFFF ^ 0x8000) - 0x8000} if sopk else {}
        wave = Wave(exec=exec_mask, scc=scc, destination=np.array(old, np.uint32))
        given = sources[:-1] if sopk else sources
        actual, out = wave.scalar(name, *given, dwords=dwords, wide=wide, **fields)
        before = old[0] | (old[1] << 32 if dwords == 2 else 0)
        state = pcode.State(exec=exec_mask, scc=int(scc), d0=before)
        state.sources = {f"S{i}": s for i, s in enumerate(sources)}
        pcode.execute(text, state, CODE)
        shown = [hex(s) for s in sources], hex(before), hex(exec_mask), scc
        assert actual == state.d0 & ((1 << 32 * dwords) - 1), shown
        assert out.scc == bool(state.scc), shown
        assert out.pair(EXEC) == state.exec & ALL, shown
