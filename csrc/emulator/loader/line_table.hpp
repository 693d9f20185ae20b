// The DWARF 5 line table (.debug_line) that clang -gline-tables-only writes.
#pragma once

#include <map>
#include <string>

#include "loader/elf.hpp"

namespace hk::emulator {

// Address to "file:line"; a row holds up to the next row's address, "" where a sequence ended.
using LineTable = std::map<uint64_t, std::string>;

LineTable read_line_table(const Elf& elf);  // empty without .debug_line; LoadError

}  // namespace hk::emulator
