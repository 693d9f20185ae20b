// Linux hands AMX's tile registers only to a process that asks for them.
#pragma once

#include <string>

namespace hk::cpu {

// Asks once for the whole process. Returns why AMX's bfloat16 tiles cannot be used, or nothing.
// Source: Documentation/arch/x86/xstate.rst of Linux.
const std::string& why_no_amx();

}  // namespace hk::cpu
