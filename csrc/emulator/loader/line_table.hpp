// Reads the line table (.debug_line) of DWARF 5, which clang -gline-tables-only writes, or of
// DWARF 4, which Triton writes.
#pragma once

#include <map>
#include <string>

#include "loader/elf.hpp"

namespace hk::emulator {

// "file:line" by address; a row is valid up to the next row's address. "": a sequence ended.
using LineTable = std::map<uint64_t, std::string>;

LineTable read_line_table(const Elf& elf);  // empty without .debug_line; throws LoadError

}  // namespace hk::emulator
