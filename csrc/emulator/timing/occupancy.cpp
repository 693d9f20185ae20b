#include "timing/occupancy.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace hk::emulator::timing {

using P = Parameter;

uint32_t resident_workgroups(const Trace& trace, const Parameters& parameters) {
  const uint32_t waves = uint32_t(trace.workgroups.at(0).waves.size());
  const uint32_t granule = parameters.whole(P::register_granule);
  const uint32_t registers = (std::max(trace.registers, 1u) + granule - 1) / granule * granule;
  const uint32_t per_simd =
      std::min(parameters.whole(P::waves_per_simd), parameters.whole(P::registers) / registers);
  uint32_t fit = per_simd * kSimds / waves;
  if (trace.lds_bytes > 0)
    fit = std::min(fit, uint32_t(parameters[P::lds_size] / double(trace.lds_bytes)));
  if (fit == 0)
    throw std::invalid_argument("no CU holds a workgroup of " + std::to_string(waves) +
                                " waves with " + std::to_string(registers) + " registers and " +
                                std::to_string(trace.lds_bytes) + " bytes of LDS");
  return fit;
}

}  // namespace hk::emulator::timing
