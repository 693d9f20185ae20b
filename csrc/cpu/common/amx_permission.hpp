// Asks Linux for AMX's tile registers, which a process may use only after asking.
#pragma once

#include <string>

namespace hk::cpu {

// Asks once for the whole process. Returns why AMX's bfloat16 tiles cannot be used; empty: they
// can. Source: Documentation/arch/x86/xstate.rst of Linux.
const std::string& why_no_amx();

}  // namespace hk::cpu
