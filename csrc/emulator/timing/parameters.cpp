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
constexpr Estimate calibrated(double value, double low, double high) {
  return {value, low, high, Certainty::calibrated};
}
constexpr Estimate guessed(double value, double low, double high) {
  return {value, low, high, Certainty::guessed};
}

#define ROW(name) Parameter::name, #name

// The parameters. Columns: name, unit, meaning, source, gfx950, gfx942. "guides": AMD's CDNA3 and
// CDNA4 ISA guides and white papers. "calibrated": chosen to fit published kernels
// (docs/timing.md).
constexpr ParameterRow kRows[] = {
    // The device
    {ROW(compute_units), "", "CUs that take workgroups", "product pages", published(256),
     published(304)},
    {ROW(xcds), "", "dies; workgroups go round them", "product pages", published(8), published(8)},
    {ROW(clock), "GHz", "peak engine clock", "product pages", published(2.4), published(2.1)},
    {ROW(clock_idle), "of clock", "clock that power allows with idle matrix units",
     "attention and GEMM figures", calibrated(0.8, 0.76, 0.84), calibrated(0.95, 0.9, 1)},
    {ROW(clock_loaded), "of clock", "... with busy ones; linear in between",
     "attention and GEMM figures", calibrated(0.69, 0.66, 0.72), calibrated(0.475, 0.45, 0.65)},
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
    {ROW(branch_taken), "clocks", "until a wave issues after a jump", "guides: four issue slots",
     guessed(16, 8, 32), guessed(16, 8, 32)},
    {ROW(branch_after_scalar), "clocks", "from a scalar instruction to a jump", "none",
     guessed(4, 4, 8), guessed(4, 4, 8)},
    {ROW(after_matrix), "clocks",
     "from a matrix instruction to the wave's next one of the vector ALU, the LDS or memory",
     "none", guessed(4, 4, 8), guessed(4, 4, 8)},
    {ROW(memory_after_vector), "clocks", "from a vector instruction to one of the LDS or memory",
     "none", guessed(4, 4, 12), guessed(4, 4, 12)},
    {ROW(scalar_after_vector), "clocks",
     "from a vector instruction that writes a scalar register to a scalar one that reads it",
     "none", guessed(4, 4, 20), guessed(4, 4, 20)},
    {ROW(barrier_release), "clocks", "from the last wave's arrival on", "attention figures",
     guessed(16, 4, 48), guessed(16, 4, 48)},
    // Vector ALU
    {ROW(vector), "clocks", "an instruction of 64 lanes, packed ones too", "guides: 16 lanes",
     published(4), published(4)},
    {ROW(vector_wide), "clocks", "f64, 32-bit multiplication", "guides: half rate", published(8),
     published(8)},
    {ROW(vector_swap), "clocks", "exchange of two registers", "LLVM's scheduling model",
     published(8), published(8)},
    {ROW(transcendental), "clocks", "exp, log, rcp, rsq, sqrt, sin, cos",
     "guides: quarter rate; gfx950 reported twice as fast", guessed(8, 8, 16), published(16)},
    // Matrix unit
    {ROW(matrix), "of passes", "busy time, of the passes that the peak rates give",
     "product pages, LLVM's scheduling model", published(1), published(1)},
    {ROW(matrix_issue), "clocks", "of the vector ALU's port, to issue a matrix instruction",
     "guides: reads its operands through it", published(4), published(4)},
    {ROW(matrix_scaled_issue), "clocks", "... to issue one with scales", "as without scales",
     guessed(4, 4, 12), published(4)},
    {ROW(matrix_forward), "clocks", "more until anything but its own accumulator chain reads it",
     "LLVM's hazard recognizer", published(16), published(16)},
    {ROW(packed_after_matrix), "clocks",
     "from the end of the SIMD's matrix instructions to a packed float32 one; 0: it does not wait",
     "none", guessed(0, 0, 12), guessed(0, 0, 12)},
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
    {ROW(lds_write_issue), "clocks", "of a wave for each dword of a lane that it writes", "none",
     guessed(0, 0, 4), guessed(0, 0, 4)},
    {ROW(lds_copy), "bytes/clock", "copies from global memory, as they land", "as writes",
     guessed(128, 64, 128), guessed(128, 64, 128)},
    {ROW(lds_latency), "clocks", "from the last phase until a wait sees it",
     "measurements of CDNA3", guessed(100, 64, 128), guessed(100, 64, 128)},
    {ROW(lds_queue), "clocks", "of work that waits in front of the LDS before waves stall", "none",
     guessed(64, 16, 128), guessed(64, 16, 128)},
    // Vector and scalar memory, per CU
    {ROW(vector_memory), "bytes/clock", "address path and L1", "guides: 64-byte path",
     published(64), published(64)},
    {ROW(vector_memory_queue), "clocks", "of work that waits in front of it before waves stall",
     "none", guessed(256, 64, 1024), guessed(256, 64, 1024)},
    {ROW(l1_latency), "clocks", "of a load that hits the vector L1", "measurements of CDNA3",
     guessed(120, 100, 200), guessed(120, 100, 200)},
    {ROW(l2), "bytes/clock", "from L2 to one CU", "guides", published(64), published(64)},
    {ROW(l2_latency), "clocks", "of a load that hits L2", "measurements of CDNA3",
     guessed(500, 300, 700), guessed(500, 300, 700)},
    {ROW(l2_hits), "of fetches", "of what several workgroups fetch", "none",
     guessed(0.9, 0.7, 0.98), guessed(0.9, 0.7, 0.98)},
    {ROW(compute_unit_fabric), "bytes/clock", "past L2, one CU alone", "measurements of CDNA3",
     guessed(26, 20, 40), guessed(26, 20, 40)},
    {ROW(infinity_cache), "TB/s", "of the device", "CDNA 3 white paper: peak",
     published(17.2, 10, 17.2), published(17.2, 10, 17.2)},
    {ROW(infinity_cache_latency), "clocks", "of a load that misses L2 and hits there",
     "measurements of CDNA3", guessed(700, 500, 1000), guessed(700, 500, 1000)},
    {ROW(hbm), "TB/s", "reads that the device sustains", "6.15 to 6.9 published; FP8 rows of M=1",
     calibrated(6.4, 6.15, 6.9), published(4.3, 4.0, 4.6)},
    {ROW(hbm_write_cost), "of a read", "a written byte's share of that bandwidth",
     "casts and LayerNorm", calibrated(2.3, 1.5, 2.6), guessed(2.2, 1, 2.6)},
    {ROW(hbm_burst), "bytes", "that a CU may be ahead of its share, while others are behind",
     "none", guessed(65536, 16384, 131072), guessed(65536, 16384, 131072)},
    {ROW(hbm_latency), "clocks", "of a load that hits no cache", "measurements of CDNA3",
     guessed(800, 700, 1600), guessed(800, 700, 1600)},
    {ROW(scalar_latency), "clocks", "of a scalar load", "measurements of CDNA3",
     guessed(200, 100, 500), guessed(200, 100, 500)},
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
  if (row.unit == "of fetches") return finite && value <= 1 ? "" : "0 to 1";
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
