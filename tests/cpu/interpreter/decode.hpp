// Decodes by hand: Intel SDM volume 2, sections 2.3 (VEX), 2.7 (EVEX, disp8*N) and 2.1 (ModRM, SIB);
// opcodes from the pages of the instructions. Of AVX512-BF16, VNNI and AMX it knows what the host
// kernels are compiled to, on whole vectors of 64 bytes and without masks, and refuses all else.
#pragma once

#include <cstdint>

namespace hk::test {

enum class Operation : uint8_t {
  vdpbf16ps,
  vcvtneps2bf16,
  vcvtne2ps2bf16,
  vpdpbusd,
  vpdpwssd,
  ldtilecfg,
  tilerelease,
  tilezero,
  tileloadd,
  tilestored,
  tdpbf16ps,
};

constexpr int8_t NONE = -1, RIP = 16;

// The address is base + (index << shift) + displacement; the base RIP is the next instruction's.
struct Instruction {
  Operation operation;
  bool vector;
  uint8_t length;       // in bytes
  uint8_t destination;  // a store's source
  uint8_t first;        // the operand of the prefix (vvvv)
  uint8_t second;       // the operand of ModRM.rm, if it is a register
  bool memory, broadcast;
  int8_t base, index;
  uint8_t shift;
  int32_t displacement;
};

enum Prefix : uint8_t { NP, P66, PF3, PF2 };  // as in the field `pp`

// Operands of an instruction, and what ModRM may hold.
enum class Form : uint8_t {
  dot,           // destination, first, second or memory
  convert,       // destination, second or memory
  config,        // memory
  release,       // nothing: ModRM is 0xC0
  zero,          // destination tile, ModRM.rm is 0
  rows,          // destination tile, memory with a SIB byte, whose index is the stride
  tile_product,  // destination, second, first: three tiles
};

struct Row {
  Operation operation;
  bool evex;
  Prefix prefix;
  uint8_t opcode;  // of the map 0F 38
  Form form;
};

constexpr Row TABLE[] = {
    {Operation::vdpbf16ps, true, PF3, 0x52, Form::dot},
    {Operation::vcvtneps2bf16, true, PF3, 0x72, Form::convert},
    {Operation::vcvtne2ps2bf16, true, PF2, 0x72, Form::dot},
    {Operation::vpdpbusd, true, P66, 0x50, Form::dot},
    {Operation::vpdpwssd, true, P66, 0x52, Form::dot},
    {Operation::ldtilecfg, false, NP, 0x49, Form::config},
    {Operation::tilerelease, false, NP, 0x49, Form::release},
    {Operation::tilezero, false, PF2, 0x49, Form::zero},
    {Operation::tileloadd, false, PF2, 0x4B, Form::rows},
    {Operation::tilestored, false, PF3, 0x4B, Form::rows},
    {Operation::tdpbf16ps, false, PF3, 0x5C, Form::tile_product},
};

// The fields of a VEX or EVEX prefix, with inverted bits set right.
struct Fields {
  bool evex, r, x, b, r2, v2, w;  // r2 and v2: R' and V'
  uint8_t map, vvvv, prefix, length, mask;
  bool zeroing, broadcast;
};

inline const uint8_t* parse_prefix(const uint8_t* code, Fields& f) {
  f = {};
  f.evex = code[0] == 0x62;
  if (!f.evex && code[0] != 0xC4) return nullptr;  // C5 is of the map 0F
  const uint8_t p0 = code[1], p1 = code[2];
  f.r = !(p0 & 0x80);
  f.x = !(p0 & 0x40);
  f.b = !(p0 & 0x20);
  f.w = p1 & 0x80;
  f.vvvv = ~(p1 >> 3) & 15;
  f.prefix = p1 & 3;
  if (!f.evex) {
    f.map = p0 & 31;
    f.length = (p1 >> 2) & 1;
    return code + 3;
  }
  const uint8_t p2 = code[3];
  if (p0 & 0x08 || !(p1 & 0x04)) return nullptr;  // registers of APX, or no such prefix
  f.map = p0 & 7;
  f.r2 = !(p0 & 0x10);
  f.v2 = !(p2 & 0x08);
  f.zeroing = p2 & 0x80;
  f.length = (p2 >> 5) & 3;
  f.broadcast = p2 & 0x10;
  f.mask = p2 & 7;
  return code + 4;
}

inline bool fits(Form form, uint8_t modrm) {
  const bool memory = modrm < 0xC0;
  switch (form) {
    case Form::config: return memory;
    case Form::release: return modrm == 0xC0;
    case Form::zero: return !memory && (modrm & 7) == 0;
    case Form::rows: return memory && (modrm & 7) == 4;
    case Form::tile_product: return !memory;
    default: return true;
  }
}

inline const Row* find(const Fields& f, uint8_t opcode, uint8_t modrm) {
  for (const Row& row : TABLE) {
    if (row.evex == f.evex && row.prefix == f.prefix && row.opcode == opcode &&
        fits(row.form, modrm)) {
      return &row;
    }
  }
  return nullptr;
}

// The memory operand after `modrm`; returns what follows it.
inline const uint8_t* parse_memory(const uint8_t* code, const Fields& f, uint8_t modrm, int unit,
                                   Instruction& i) {
  const uint8_t mode = modrm >> 6, rm = modrm & 7;
  i.memory = true;
  i.index = NONE;
  bool wide = mode == 2;
  if (rm == 4) {
    const uint8_t sib = *code++;
    i.base = (sib & 7) | f.b << 3;
    i.shift = sib >> 6;
    const uint8_t index = ((sib >> 3) & 7) | f.x << 3;
    if (index != 4) i.index = index;
    if (mode == 0 && (sib & 7) == 5) {
      i.base = NONE;
      wide = true;
    }
  } else if (mode == 0 && rm == 5) {
    i.base = RIP;
    wide = true;
  } else {
    i.base = rm | f.b << 3;
  }
  if (wide) {
    i.displacement = static_cast<int32_t>(code[0] | code[1] << 8 | code[2] << 16 |
                                          static_cast<uint32_t>(code[3]) << 24);
    return code + 4;
  }
  if (mode == 1) i.displacement = static_cast<int8_t>(*code++) * unit;
  return code;
}

inline bool valid_vector(const Row& row, const Fields& f, bool memory) {
  const bool whole = f.length == 2 && f.mask == 0 && !f.zeroing;
  if (f.w || !whole || (f.broadcast && !memory)) return false;
  return row.form == Form::dot || (f.vvvv == 0 && !f.v2);
}

inline bool valid_tile(const Row& row, const Fields& f, const Instruction& i) {
  if (f.w || f.length != 0) return false;
  if (row.form == Form::tile_product) {
    return i.destination < 8 && i.first < 8 && i.second < 8 && i.destination != i.first &&
           i.destination != i.second && i.first != i.second;
  }
  if (row.form == Form::rows && i.index == NONE) return false;  // the stride would be missing
  const bool tile = row.form == Form::zero || row.form == Form::rows;
  return f.vvvv == 0 && (tile ? i.destination < 8 : (i.destination & 7) == 0);
}

// Whether `code` begins with one of these instructions, in an encoding that the processor accepts.
// Prefixes of segment or address size are refused: compilers put none before these instructions.
inline bool decode(const uint8_t* code, Instruction& i) {
  constexpr uint8_t map_0f38 = 2;
  Fields f;
  const uint8_t* at = parse_prefix(code, f);
  if (!at || f.map != map_0f38) return false;
  const uint8_t opcode = at[0], modrm = at[1];
  at += 2;
  const Row* row = find(f, opcode, modrm);
  if (!row) return false;
  const bool memory = modrm < 0xC0;
  i = {};
  i.operation = row->operation;
  i.vector = f.evex;
  i.destination = ((modrm >> 3) & 7) | f.r << 3 | f.r2 << 4;
  i.first = f.vvvv | f.v2 << 4;
  i.broadcast = f.broadcast;
  if (memory) {
    at = parse_memory(at, f, modrm, !f.evex ? 1 : f.broadcast ? 4 : 64, i);
  } else {
    i.second = (modrm & 7) | f.b << 3 | (f.evex && f.x) << 4;
  }
  i.length = static_cast<uint8_t>(at - code);
  return f.evex ? valid_vector(*row, f, memory) : valid_tile(*row, f, i);
}

}  // namespace hk::test
