// Semantics: the computation of each ALU and matrix instruction on a wave.
//
//   semantics_scalar*.cpp    SALU
//   semantics_vector_*.cpp   VALU by kind of computation; operands and modifiers are in lanes.hpp
//   semantics_matrix*.cpp    MFMA
// The vector and matrix files are compiled once per instruction set of the host, each time into
// the namespace HK_ISA; every one gives the same bits.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>

#include "isa/instruction.hpp"

#ifndef HK_ISA
#define HK_ISA portable
#endif

namespace hk::emulator {

// Finds the handler of a mnemonic (without _e32, _e64, _dpp, _sdwa). Null: the machine itself
// executes the instruction, or it is not emulated. Handlers throw Unsupported.
Execute find_semantics(std::string_view mnemonic, Arch arch);

// The instruction is known, but this form of it is not emulated.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Semantics = std::unordered_map<std::string, Execute>;

void add_scalar(Semantics&);

namespace HK_ISA {
void add_all(Semantics&, Arch);  // vector and matrix
}

}  // namespace hk::emulator
