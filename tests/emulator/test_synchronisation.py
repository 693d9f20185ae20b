"""Workgroups that hand bytes to each other: by release and acquire no race, without them one.

The steps are those of LLVM's memory model for the device's scope (AMDGPU usage, gfx942).
"""

from __future__ import annotations

import numpy as np
import pytest

from hk_backend import _emulator
from tests.emulator.assembly import checks, run

WORKGROUPS, LANES = 3, 64
HAND_OVER = """
  s_mov_b32 s12, s2                        ; workgroup
  v_lshlrev_b32 v1, 2, v0
  s_lshl_b32 s13, s12, 8
  v_add_u32 v2, s13, v1
  v_add_u32 v3, 1, v0
  global_store_dword v2, v3, s[6:7]        ; out[workgroup][lane] = lane + 1
  buffer_wbl2 sc1
  s_waitcnt vmcnt(0)
  v_mov_b32 v4, 0
  v_mov_b32 v5, 1
  s_mov_b64 s[14:15], exec
  s_mov_b64 exec, 1
  global_atomic_add v6, v4, v5, s[4:5] sc0 ; how many were before
  s_mov_b64 exec, s[14:15]
  s_waitcnt vmcnt(0)
  v_readfirstlane_b32 s16, v6
  s_cmp_lg_u32 s16, 2
  s_cbranch_scc1 end
  buffer_inv sc1
  global_load_dword v7, v1, s[6:7]
  global_load_dword v8, v1, s[6:7] offset:256
  global_load_dword v9, v1, s[6:7] offset:512
  s_waitcnt vmcnt(0)
  v_add3_u32 v7, v7, v8, v9
  global_store_dword v1, v7, s[6:7] offset:768
  end:
"""
"""The last of three workgroups adds up what all have stored."""


def execute(body: str, seed: int = 0, **launch: int) -> tuple[_emulator.Report, np.ndarray]:
    arrived, out = np.zeros(1, np.uint32), np.zeros((WORKGROUPS + 1, LANES), np.uint32)
    report = run(body, arrived, out, grid=WORKGROUPS, launch={"seed": seed, **launch})
    return report, out[WORKGROUPS]


@pytest.mark.parametrize(("threads", "seeds"), [(1, 4), (3, 10)])
def test_the_last_to_arrive_may_read_what_all_have_released(threads: int, seeds: int) -> None:
    for seed in range(seeds):
        report, total = execute(HAND_OVER, seed, threads=threads)
        assert not report.findings, report.findings[0].message
        np.testing.assert_array_equal(total, 3 * np.arange(1, LANES + 1))


def without(step: str, by: str = "s_nop 0") -> str:
    """The program with the first occurrence of a step replaced."""
    assert step in HAND_OVER
    return HAND_OVER.replace(step, by, 1)


LATE = "  buffer_wbl2 sc1\n  s_waitcnt vmcnt(0)\n"
ATOMIC = "global_atomic_add v6, v4, v5, s[4:5] sc0 ; how many were before"


COUNTED_EARLY = HAND_OVER.replace(ATOMIC, "s_nop 0").replace(
    "global_store_dword v2, v3",
    f"""v_mov_b32 v4, 0
  v_mov_b32 v5, 1
  s_mov_b64 s[14:15], exec
  s_mov_b64 exec, 1
  {ATOMIC}
  s_mov_b64 exec, s[14:15]
  s_waitcnt vmcnt(0)
  global_store_dword v2, v3""",
)
OWN_COUNTERS = """v_mov_b32 v4, s13
  global_atomic_add v10, v4, v5, s[6:7] offset:1024 sc0
  v_mov_b32 v6, s12"""
SOME_RELEASE = "s_cmp_eq_u32 s12, 1\n  s_cbranch_scc1 skip\n  buffer_wbl2 sc1\n  skip:"
RACES = {
    "no release": without("buffer_wbl2 sc1"),
    "released to few": without("buffer_wbl2 sc1", "buffer_wbl2 sc0"),
    "released by some": without("buffer_wbl2 sc1", SOME_RELEASE),
    "released but not waited": without("s_waitcnt vmcnt(0)"),
    "waited too little": without("s_waitcnt vmcnt(0)", "s_waitcnt vmcnt(1)"),
    "released late": without(LATE, "  s_waitcnt vmcnt(0)\n  buffer_wbl2 sc1\n"),
    "counted before the stores": COUNTED_EARLY,
    "no acquire": without("buffer_inv sc1"),
    "acquired from few": without("buffer_inv sc1", "buffer_inv sc0"),
    "no counter": without(ATOMIC, "v_lshlrev_b32 v4, 2, v4\n  v_mov_b32 v6, s12"),
    "counters of their own": without(ATOMIC, OWN_COUNTERS),
}


@pytest.mark.parametrize("name", RACES)
def test_without_a_step_it_is_a_race(name: str) -> None:
    arrived, out = np.zeros(1, np.uint32), np.zeros((WORKGROUPS + 9, LANES), np.uint32)
    report = run(RACES[name], arrived, out, grid=WORKGROUPS)
    assert "global-race" in checks(report)
    assert "reads bytes of 'out' that workgroup" in report.findings[0].message
    if name == "released by some":
        others = {f.message.partition("; ")[0] for f in report.findings}
        assert others == {
            "global-race: reads bytes of 'out' that workgroup 1 of the same launch writes"
        }


BY_TWO_WAVES = """
  s_mov_b32 s12, s2                        ; workgroup
  v_readfirstlane_b32 s17, v0              ; 0 in the first wave
  s_lshl_b32 s13, s12, 9
  v_add_u32 v2, s13, v1
  v_add_u32 v3, 1, v0
  global_store_dword v2, v3, s[6:7]        ; out[workgroup][work-item] = work-item + 1
  s_cmp_lg_u32 s17, 0
  s_cbranch_scc1 second
  buffer_wbl2 sc1
  s_waitcnt vmcnt(0)
  s_barrier
  v_mov_b32 v4, 0
  v_mov_b32 v5, 1
  s_mov_b64 exec, 1
  global_atomic_add v6, v4, v5, s[4:5] sc0 ; how many were before
  s_waitcnt vmcnt(0)
  ds_write_b32 v4, v6
  s_mov_b64 exec, -1
  s_waitcnt lgkmcnt(0)
  s_barrier
  s_branch both
  second:
  buffer_wbl2 sc1
  s_waitcnt vmcnt(0)
  s_barrier
  s_barrier
  both:
  v_mov_b32 v4, 0
  ds_read_b32 v6, v4
  s_waitcnt lgkmcnt(0)
  v_readfirstlane_b32 s16, v6
  s_cmp_lg_u32 s16, 1
  s_cbranch_scc1 end
  buffer_inv sc1
  global_load_dword v7, v1, s[6:7]
  global_load_dword v8, v1, s[6:7] offset:512
  s_waitcnt vmcnt(0)
  v_add_u32 v7, v7, v8
  global_store_dword v1, v7, s[6:7] offset:1024
  end:
"""
"""The last of two workgroups adds up; the first wave counts for both, and tells the second one."""
SECOND = "second:\n  buffer_wbl2 sc1\n  s_waitcnt vmcnt(0)\n  s_barrier"
OF_WAVES = {
    "the second wave waits after the barrier": (
        SECOND,
        "second:\n  buffer_wbl2 sc1\n  s_barrier\n  s_waitcnt vmcnt(0)",
    ),
    "the second wave writes back after the barrier": (
        SECOND,
        "second:\n  s_barrier\n  buffer_wbl2 sc1\n  s_waitcnt vmcnt(0)",
    ),
    "the first wave alone writes back and waits": (SECOND, "second:\n  s_barrier"),
    "the first wave alone waits": (SECOND, "second:\n  buffer_wbl2 sc1\n  s_barrier"),
    "the first wave alone acquires": (
        "buffer_inv sc1",
        "s_cmp_lg_u32 s17, 0\n  s_cbranch_scc1 over\n  buffer_inv sc1\n  over:",
    ),
}


def by_waves(body: str, seed: int) -> tuple[_emulator.Report, np.ndarray]:
    arrived, out = np.zeros(1, np.uint32), np.zeros((3, 128), np.uint32)
    report = run(body, arrived, out, grid=2, block=128, lds=256, launch={"seed": seed})
    return report, out[2]


@pytest.mark.parametrize("name", OF_WAVES)
def test_each_wave_releases_and_acquires_its_own(name: str) -> None:
    """A wave's stores are released by its own wait, before the barrier at which another counts."""
    old, new = OF_WAVES[name]
    assert BY_TWO_WAVES.count(old) == 1
    for seed in range(6):
        report, total = by_waves(BY_TWO_WAVES, seed)
        assert not report.findings, report.findings[0].message
        np.testing.assert_array_equal(total, 2 * np.arange(1, 129))
        report, _ = by_waves(BY_TWO_WAVES.replace(old, new), seed)
        assert checks(report) == {"global-race"}
        assert all(f.instruction.startswith("global_load_dword") for f in report.findings)


def test_a_barrier_hands_on_what_one_wave_has_acquired() -> None:
    """The first wave acquires before the barrier that lets the second one read."""
    body = BY_TWO_WAVES.replace("buffer_inv sc1", "s_nop 0")
    told = "ds_write_b32 v4, v6"
    assert checks(by_waves(body, 0)[0]) == {"global-race"}
    for seed in range(6):
        report, total = by_waves(body.replace(told, f"buffer_inv sc1\n  {told}"), seed)
        assert not report.findings, report.findings[0].message
        np.testing.assert_array_equal(total, 2 * np.arange(1, 129))


def test_a_seed_draws_the_order_of_workgroups() -> None:
    """The first workgroup to arrive is the one with the lowest number only for seed 0."""
    body = """
      v_mov_b32 v1, 0
      v_mov_b32 v2, 1
      s_lshl_b32 s12, s2, 2
      v_mov_b32 v5, s12
      s_mov_b64 exec, 1
      global_atomic_add v3, v1, v2, s[4:5] sc0
      s_waitcnt vmcnt(0)
      global_store_dword v5, v3, s[6:7]
    """
    orders = []
    for seed in (0, 1, 1, 2):
        arrived, out = np.zeros(1, np.uint32), np.zeros(16, np.uint32)
        assert not run(body, arrived, out, grid=16, launch={"seed": seed}).findings
        assert sorted(out) == list(range(16))
        orders.append(out.tolist())
    assert orders[0] == list(range(16))
    assert orders[1] == orders[2] != orders[0]
    assert orders[3] not in orders[:2]
