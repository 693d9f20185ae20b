// Adds up the counts of all threads to the counters of a report.
#pragma once

#include "machine/workgroup.hpp"

namespace hk::emulator {

Counters make_counters(const Launch& launch, std::span<const Counts> counts);
const char* class_name(Class cls);

}  // namespace hk::emulator
