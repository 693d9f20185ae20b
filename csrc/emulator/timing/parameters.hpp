// All parameters of the timing model: a row for each, with a column per arch and its source.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "isa/instruction.hpp"

namespace hk::emulator::timing {

// Names of the parameters, also for `--set name=value`.
// clang-format off
#define HK_TIMING_PARAMETERS(X) \
  X(compute_units) X(xcds) X(clock) X(clock_idle) X(clock_loaded) X(launch) X(dependent_gap) \
  X(workgroup_start) X(waves_per_simd) X(registers) X(register_granule) X(lds_size) X(issue) \
  X(branch_taken) X(branch_after_scalar) X(after_matrix) X(memory_after_vector) X(scalar_after_vector) X(barrier_release) X(vector) X(vector_wide) X(vector_swap) X(transcendental) \
  X(matrix) X(matrix_issue) X(matrix_scaled_issue) X(matrix_forward) X(packed_after_matrix) X(lds_read_b128) X(lds_read_b64) X(lds_read_b32) \
  X(lds_read_transposed) X(lds_write) X(lds_write_issue) X(lds_copy) X(lds_latency) X(lds_queue) X(vector_memory) \
  X(vector_memory_queue) X(vector_memory_in_flight) X(loads_in_order) X(l1_latency) X(l2) X(l2_latency) X(l2_hits) \
  X(l2_miss_run) X(compute_unit_fabric) \
  X(infinity_cache) X(infinity_cache_latency) X(hbm) X(hbm_write_cost) X(hbm_burst) \
  X(hbm_latency) X(scalar_latency) X(scalar_cold) X(scalar_miss) \
  X(infinity_cache_clean) X(infinity_cache_dirty) X(l2_size) X(l2_kept) X(l2_drift)
// clang-format on

enum class Parameter : uint8_t {
#define X(name) name,
  HK_TIMING_PARAMETERS(X)
#undef X
      count
};
inline constexpr size_t kParameters = size_t(Parameter::count);

enum class Certainty : uint8_t { measured, published, calibrated, guessed };

// A value with the range in which it may lie.
struct Estimate {
  double value, low, high;
  Certainty certainty;
};

struct ParameterRow {
  Parameter parameter;
  std::string_view name, unit, what, source;
  Estimate gfx950, gfx942;

  const Estimate& of(Arch arch) const { return arch == Arch::gfx950 ? gfx950 : gfx942; }
};

std::span<const ParameterRow> parameter_rows();  // in the order of `Parameter`

// Values of the parameters for one arch; the table gives their units.
class Parameters {
 public:
  explicit Parameters(Arch arch);
  // Throws std::invalid_argument for an unknown name, or a value that is not a finite number >= 0.
  Parameters(Arch arch, const std::map<std::string, double>& changes);

  double operator[](Parameter p) const { return values_[size_t(p)]; }
  uint32_t whole(Parameter p) const { return uint32_t(values_[size_t(p)] + 0.5); }
  Arch arch() const { return arch_; }

 private:
  Arch arch_;
  std::array<double, kParameters> values_;
};

}  // namespace hk::emulator::timing
