#include "timing/parameters.hpp"

#include <cmath>
#include <sstream>
#include <stdexcept>

namespace hk::emulator::timing {
namespace {

constexpr Estimate published(double value) { return {value, value, value, Certainty::published}; }
constexpr Estimate published(double value, double low, double high) {
  return {value, low, high, Certainty::published};
}
// The range of a measured value: the quartiles, or the least and the most that was seen.
constexpr Estimate measured(double value, double low, double high) {
  return {value, low, high, Certainty::measured};
}
constexpr Estimate calibrated(double value, double low, double high) {
  return {value, low, high, Certainty::calibrated};
}
constexpr Estimate guessed(double value, double low, double high) {
  return {value, low, high, Certainty::guessed};
}

#define ROW(name) Parameter::name, #name

// The parameters. Columns: name, unit, meaning, source, gfx950, gfx942. "guides": AMD's CDNA3 and
// CDNA4 ISA guides and white papers. "calibrated": chosen to fit published kernels. "traces": of an
// MI350X (docs/timing.md).
constexpr ParameterRow kRows[] = {
    // The device
    {ROW(compute_units), "", "CUs that take workgroups", "product pages", published(256),
     published(304)},
    {ROW(xcds), "", "dies; workgroups go round them", "product pages", published(8), published(8)},
    {ROW(clock), "GHz", "peak engine clock", "product pages", published(2.4), published(2.1)},
    {ROW(clock_idle), "of clock", "clock that power allows with idle matrix units",
     "attention and GEMM figures", calibrated(0.84, 0.8, 0.86), calibrated(0.95, 0.9, 1)},
    {ROW(clock_loaded), "of clock", "... with busy ones; linear in between",
     "attention and GEMM figures", calibrated(0.635, 0.62, 0.675), calibrated(0.475, 0.45, 0.65)},
    {ROW(launch), "us", "one launch, as a benchmark of single launches sees it",
     "attention figures of short prompts", calibrated(6, 5, 10), guessed(6, 5, 10)},
    {ROW(dependent_gap), "us", "from the end of a kernel to the start of the next one",
     "figures of memory-bound kernels", calibrated(4.7, 3, 7), guessed(4.7, 3, 8)},
    {ROW(workgroup_start), "clocks", "from a workgroup's end to its successor's first instruction",
     "attention figures", guessed(250, 100, 1000), guessed(250, 100, 1000)},
    // Limits of what fits on a CU
    {ROW(waves_per_simd), "", "resident at most", "guides", published(8), published(8)},
    {ROW(registers), "", "VGPRs and AGPRs per lane and SIMD", "guides", published(512),
     published(512)},
    {ROW(register_granule), "", "registers are allocated in", "LLVM", published(8), published(8)},
    {ROW(lds_size), "bytes", "per CU", "guides", published(163840), published(65536)},
    // Issue
    {ROW(issue), "clocks", "between two instructions of a wave", "guides", published(4),
     published(4)},
    {ROW(branch_taken), "clocks", "until a wave issues after a jump", "traces; guides: four slots",
     measured(20, 4, 20), guessed(16, 8, 32)},
    {ROW(branch_after_scalar), "clocks", "from a scalar instruction to a jump", "traces",
     measured(8, 8, 8), guessed(4, 4, 8)},
    {ROW(after_matrix), "clocks",
     "from a matrix instruction to the wave's next one of the vector ALU, the LDS or memory",
     "traces", measured(8, 8, 8), guessed(4, 4, 8)},
    {ROW(memory_after_vector), "clocks", "from a vector instruction to one of the LDS or memory",
     "traces", measured(12, 12, 16), guessed(4, 4, 12)},
    {ROW(scalar_after_vector), "clocks",
     "from a vector instruction that writes a scalar register to a scalar one that reads it",
     "traces", measured(20, 20, 20), guessed(4, 4, 20)},
    {ROW(barrier_release), "clocks", "from the last wave's arrival on", "traces", measured(8, 4, 8),
     guessed(16, 4, 48)},
    // Vector ALU
    {ROW(vector), "clocks", "an instruction of 64 lanes, packed ones too", "guides: 16 lanes",
     published(4), published(4)},
    {ROW(vector_wide), "clocks", "f64, 32-bit multiplication", "traces; guides: half rate",
     measured(4, 4, 4), published(8)},
    {ROW(vector_swap), "clocks", "exchange of two registers", "traces, LLVM's scheduling model",
     measured(8, 8, 8), published(8)},
    {ROW(transcendental), "clocks", "exp, log, rcp, rsq, sqrt, sin, cos",
     "guides: quarter rate; traces", measured(8, 8, 8), published(16)},
    // Matrix unit
    {ROW(matrix), "of passes", "busy time, of the passes that the peak rates give",
     "product pages, LLVM's scheduling model", published(1), published(1)},
    {ROW(matrix_issue), "clocks", "of the vector ALU's port, to issue a matrix instruction",
     "traces; guides: reads its operands through it", measured(4, 4, 4), published(4)},
    {ROW(matrix_scaled_issue), "clocks", "... to issue one with scales", "traces",
     measured(8, 8, 8), published(4)},
    {ROW(matrix_forward), "clocks", "more until anything but its own accumulator chain reads it",
     "LLVM's hazard recognizer", published(16), published(16)},
    {ROW(packed_after_matrix), "clocks",
     "from the end of the SIMD's matrix instructions to a packed float32 one; 0: it does not wait",
     "traces", measured(12, 12, 16), guessed(0, 0, 12)},
    // LDS, per CU
    {ROW(lds_read_b128), "bytes/clock", "ds_read_b128",
     "AMD's kernel optimisation guide: doubled on CDNA4", published(256), published(128)},
    {ROW(lds_read_b64), "bytes/clock", "ds_read_b64", "published phases", published(128),
     published(128)},
    {ROW(lds_read_b32), "bytes/clock", "narrower reads, exchanges, atomics", "guides: 32 banks",
     published(128), published(128)},
    {ROW(lds_read_transposed), "bytes/clock", "ds_read_*_tr_*", "unpublished",
     guessed(128, 128, 256), guessed(128, 128, 128)},
    {ROW(lds_write), "bytes/clock", "ds_write_*", "published phases", published(128),
     published(128)},
    {ROW(lds_write_issue), "clocks", "of a wave for each dword of a lane that it writes", "traces",
     measured(4, 4, 4), guessed(0, 0, 4)},
    {ROW(lds_copy), "bytes/clock", "copies from global memory, as they land", "as writes",
     guessed(128, 64, 128), guessed(128, 64, 128)},
    {ROW(lds_latency), "clocks", "from the last phase until a wait sees it", "traces",
     measured(48, 48, 52), guessed(100, 64, 128)},
    {ROW(lds_queue), "clocks", "of work that waits in front of the LDS before waves stall",
     "traces: 7 to 9 reads", measured(32, 28, 36), guessed(64, 16, 128)},
    // Vector and scalar memory, per CU
    {ROW(vector_memory), "bytes/clock", "address path and L1", "guides: 64-byte path",
     published(64), published(64)},
    {ROW(vector_memory_queue), "clocks", "of work that waits in front of it before waves stall",
     "traces: 11 loads", measured(176, 160, 192), guessed(256, 64, 1024)},
    {ROW(vector_memory_in_flight), "bytes",
     "of loads and stores that are not done, before waves stall; in replays of traces",
     "trace of vec_add: 44 to 50 KiB", measured(49152, 45056, 51200), guessed(49152, 32768, 65536)},
    {ROW(loads_in_order), "of loads", "1: return in the CU's order; 0: in their wave's only",
     "traces: none of 40,000 pairs crossed", measured(1, 1, 1), guessed(0, 0, 1)},
    {ROW(l1_latency), "clocks", "of a load that hits the vector L1", "measurements of CDNA3",
     guessed(120, 100, 200), guessed(120, 100, 200)},
    {ROW(l2), "bytes/clock", "from L2 to one CU", "guides", published(64), published(64)},
    {ROW(l2_latency), "clocks", "of a load that hits L2, from the address path on", "traces",
     measured(182, 176, 196), guessed(500, 300, 700)},
    {ROW(l2_hits), "of fetches", "of what several workgroups fetch", "HipKittens' figures",
     calibrated(0.95, 0.7, 0.98), guessed(0.9, 0.7, 0.98)},
    {ROW(l2_miss_run), "bytes", "that miss together, since one workgroup is ahead of the others",
     "traces: attention's tiles", guessed(16384, 1024, 65536), guessed(1, 1, 65536)},
    {ROW(compute_unit_fabric), "bytes/clock", "past L2, one CU alone", "measurements of CDNA3",
     guessed(26, 20, 40), guessed(26, 20, 40)},
    {ROW(infinity_cache), "TB/s", "of the device", "trace of vec_add; white paper's peak: 17.2",
     calibrated(11.9, 10, 17.2), published(17.2, 10, 17.2)},
    {ROW(infinity_cache_latency), "clocks", "of a load that misses L2 and hits there",
     "traces: 550 to 750", calibrated(550, 500, 750), guessed(700, 500, 1000)},
    {ROW(hbm), "TB/s", "reads that the device sustains", "6.15 to 6.9 published; FP8 rows of M=1",
     calibrated(6.4, 6.15, 6.9), published(4.3, 4.0, 4.6)},
    {ROW(hbm_write_cost), "of a read", "a written byte's share of that bandwidth",
     "norms, casts and sums on an MI350X", calibrated(1.3, 1.1, 1.5), guessed(2.2, 1, 2.6)},
    {ROW(hbm_burst), "bytes", "that a CU may be ahead of its share, while others are behind",
     "none", guessed(65536, 16384, 131072), guessed(65536, 16384, 131072)},
    {ROW(hbm_latency), "clocks", "of a load that hits no cache", "measurements of CDNA3",
     guessed(800, 700, 1600), guessed(800, 700, 1600)},
    {ROW(scalar_latency), "clocks", "of a scalar load", "traces: of a hit", measured(40, 40, 512),
     guessed(200, 100, 500)},
    {ROW(scalar_cold), "clocks", "of a launch's first scalar load on a CU", "traces",
     measured(900, 790, 1240), guessed(900, 200, 1300)},
    {ROW(scalar_miss), "clocks", "of a later one of a line that the CU has not read yet",
     "trace of RMSNorm", measured(570, 400, 620), guessed(570, 400, 800)},
    // The state of the Infinity Cache before a launch; 0: nothing of others that HBM has yet to take
    {ROW(infinity_cache_clean), "MB", "that reads displace before any dirty line",
     "42 after a benchmark overwrote 256 MiB", calibrated(0, 0, 42), guessed(0, 0, 42)},
    {ROW(infinity_cache_dirty), "MB", "written by others, which reads displace to HBM",
     "80 after the same", calibrated(0, 0, 80), guessed(0, 0, 80)},
    // Operands in an XCD's L2 that its workgroups share
    {ROW(l2_size), "MB", "of an XCD", "guides: 4 MiB", published(4.2), published(4.2)},
    {ROW(l2_kept), "of it", "that holds operands read before",
     "L2 hits of attention in two orders of the grid", calibrated(0.6, 0.5, 0.7),
     guessed(0.6, 0.4, 0.8)},
    {ROW(l2_drift), "of an operand", "that workgroups are further apart after each round", "none",
     guessed(0.05, 0.01, 0.2), guessed(0.05, 0.01, 0.2)},
};
static_assert(std::size(kRows) == kParameters);

constexpr bool in_order() {
  for (size_t i = 0; i < kParameters; ++i)
    if (size_t(kRows[i].parameter) != i) return false;
  return true;
}
static_assert(in_order());

// The condition that a value does not meet; empty: it meets all.
std::string refusal(const ParameterRow& row, double value) {
  constexpr double kMost = 1e9;  // sums of such values are exact
  const bool finite = std::isfinite(value) && value >= 0 && value <= kMost;
  if (row.unit == "") {  // a count
    constexpr double kMostUnits = 65536;
    const bool fine = finite && value >= 1 && value <= kMostUnits && value == std::floor(value);
    return fine ? "" : "a whole number, 1 to 65536";
  }
  if (row.unit == "MB") return finite ? "" : "0 to 1e9";
  if (row.unit == "of fetches" || row.unit == "of loads" || row.unit == "of it" ||
      row.unit == "of an operand")
    return finite && value <= 1 ? "" : "0 to 1";
  if (row.unit == "clocks" || row.unit == "us") return finite ? "" : "0 to 1e9";
  return finite && value > 0 ? "" : "more than 0, up to 1e9";
}

std::string text_of(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

}  // namespace

std::span<const ParameterRow> parameter_rows() { return kRows; }

Parameters::Parameters(Arch arch) : arch_(arch) {
  for (const ParameterRow& row : kRows) values_[size_t(row.parameter)] = row.of(arch).value;
}

Parameters::Parameters(Arch arch, const std::map<std::string, double>& changes) : Parameters(arch) {
  for (const auto& [name, value] : changes) {
    size_t i = 0;
    while (i < kParameters && kRows[i].name != name) ++i;
    if (i == kParameters) {
      std::string valid;
      for (const ParameterRow& row : kRows)
        valid += (valid.empty() ? "" : ", ") + std::string(row.name);
      throw std::invalid_argument("timing parameter '" + name + "'; valid: " + valid);
    }
    if (const std::string valid = refusal(kRows[i], value); !valid.empty())
      throw std::invalid_argument("timing parameter " + name + " = " + text_of(value) +
                                  "; valid: " + valid);
    values_[i] = value;
  }
}

}  // namespace hk::emulator::timing
