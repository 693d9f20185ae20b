#include "loader/elf.hpp"

#include <cstdio>

namespace hk::emulator {
namespace {

// Constants of ELF64, and of "AMDGPU ELF Code Object" in LLVM's AMDGPU usage.
constexpr uint16_t kMachineAmdgpu = 224, kTypeShared = 3;
constexpr uint8_t kOsAbiHsa = 64, kOldestAbi = 2, kNewestAbi = 4;
constexpr uint32_t kMach = 0xff, kMachGfx942 = 0x4c, kMachGfx950 = 0x4f, kXnackOn = 0x300;
constexpr uint32_t kSymbolTable = 2, kNoBits = 8, kDynamicSymbols = 11;

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

Arch arch_of(uint32_t flags) {
  // 0x200 is "off", 0x300 "on": replayed page faults change what compilers may assume
  if ((flags & kXnackOn) == kXnackOn)
    throw LoadError("code object for xnack+ (e_flags " + hex(flags) +
                    "): only xnack- and any are emulated");
  if ((flags & kMach) == kMachGfx942) return Arch::gfx942;
  if ((flags & kMach) == kMachGfx950) return Arch::gfx950;
  throw LoadError("code object for another arch (e_flags " + hex(flags) +
                  "): only gfx942 and gfx950 are emulated");
}

Bytes slice(Bytes file, uint64_t offset, uint64_t size, const std::string& what) {
  if (offset > file.size() || size > file.size() - offset)
    throw LoadError(what + " lies outside the file: bytes " + hex(offset) + " to +" + hex(size) +
                    " of " + hex(file.size()) + " (truncated?)");
  return file.subspan(offset, size);
}

std::string string_at(Bytes table, uint64_t offset) {
  ByteReader reader(table, "an ELF string table");
  reader.seek(offset);
  return std::string(reader.c_string());
}

void read_symbols(Elf& elf, const Section& table) {
  if (table.link >= elf.sections.size())
    throw LoadError(table.name + " names a string table that is not there");
  const Bytes names = elf.sections[table.link].bytes;
  ByteReader reader(table.bytes, table.name);
  elf.symbols.clear();
  while (reader.remaining() >= 24) {
    const auto name = reader.read<uint32_t>();
    reader.take(4);  // info, other, section
    Symbol symbol;
    symbol.address = reader.read<uint64_t>();
    symbol.size = reader.read<uint64_t>();
    symbol.name = string_at(names, name);
    elf.symbols.push_back(std::move(symbol));
  }
}

}  // namespace

const Section* Elf::find(std::string_view name) const {
  for (const Section& section : sections)
    if (section.name == name) return &section;
  return nullptr;
}

const Section& Elf::section(std::string_view name) const {
  if (const Section* found = find(name)) return *found;
  throw LoadError("code object without section " + std::string(name));
}

Bytes Elf::at_address(uint64_t address, uint64_t size, const std::string& what) const {
  for (const Section& section : sections) {
    if (section.address == 0 || address < section.address) continue;
    const uint64_t offset = address - section.address;
    if (offset <= section.bytes.size() && size <= section.bytes.size() - offset)
      return section.bytes.subspan(offset, size);
  }
  throw LoadError(what + " at address " + hex(address) + " lies in no section");
}

Elf read_elf(Bytes file) {
  static constexpr char kMagic[] = {0x7f, 'E', 'L', 'F'};
  if (file.size() < 4 || std::memcmp(file.data(), kMagic, 4) != 0)
    throw LoadError("not an ELF file: it does not begin with 0x7f 'ELF'");
  ByteReader header(file, "the ELF header");
  header.seek(4);
  const auto bits = header.read<uint8_t>(), endian = header.read<uint8_t>();
  header.take(1);
  const auto os_abi = header.read<uint8_t>(), abi_version = header.read<uint8_t>();
  header.seek(16);
  const auto type = header.read<uint16_t>(), machine = header.read<uint16_t>();
  if (bits != 2 || endian != 1 || machine != kMachineAmdgpu || os_abi != kOsAbiHsa ||
      type != kTypeShared)
    throw LoadError("not a code object for AMD GPUs: ELF machine " + std::to_string(machine) +
                    ", OS ABI " + std::to_string(os_abi) + ", type " + std::to_string(type) +
                    "; wanted 224, 64, 3");
  if (abi_version < kOldestAbi || abi_version > kNewestAbi)
    throw LoadError("code object of ABI version " + std::to_string(abi_version) +
                    "; 2 to 4 (code object V4 to V6) are read");
  header.seek(40);
  const auto section_headers = header.read<uint64_t>();
  const auto flags = header.read<uint32_t>();
  header.seek(58);
  const auto header_size = header.read<uint16_t>(), count = header.read<uint16_t>(),
             names_index = header.read<uint16_t>();
  Elf elf{arch_of(flags), {}, {}};
  if (header_size != 64)
    throw LoadError("ELF section headers of " + std::to_string(header_size) +
                    " bytes: 64 expected");

  ByteReader reader(
      slice(file, section_headers, uint64_t(count) * 64, "the table of section headers"),
      "the section headers");
  std::vector<uint32_t> names;
  for (int i = 0; i < count; ++i) {
    Section& section = elf.sections.emplace_back();
    names.push_back(reader.read<uint32_t>());
    section.type = reader.read<uint32_t>();
    reader.take(8);  // flags
    section.address = reader.read<uint64_t>();
    const auto offset = reader.read<uint64_t>(), size = reader.read<uint64_t>();
    section.link = reader.read<uint32_t>();
    reader.take(20);  // info, alignment, entry size
    if (section.type != kNoBits)
      section.bytes = slice(file, offset, size, "ELF section " + std::to_string(i));
  }
  if (names_index >= count) throw LoadError("ELF file without section names");
  for (int i = 0; i < count; ++i)
    elf.sections[size_t(i)].name = string_at(elf.sections[names_index].bytes, names[size_t(i)]);
  for (uint32_t wanted : {kDynamicSymbols, kSymbolTable})
    for (const Section& section : elf.sections)
      if (section.type == wanted) read_symbols(elf, section);
  return elf;
}

}  // namespace hk::emulator
