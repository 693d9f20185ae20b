// Decodes by hand: Intel SDM volume 2, sections 2.3 (VEX), 2.7 (EVEX, disp8*N) and 2.1 (ModRM, SIB);
// opcodes from the pages of the instructions.
#include "instruction.hpp"

namespace hk::test {
namespace {

enum class Encoding : uint8_t { evex, vex };
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
  const char* name;
  Encoding encoding;
  Prefix prefix;
  uint8_t opcode;  // of the map 0F 38
  Form form;
};

using enum Operation;

constexpr Row TABLE[] = {
    {vdpbf16ps, "vdpbf16ps", Encoding::evex, PF3, 0x52, Form::dot},
    {vcvtneps2bf16, "vcvtneps2bf16", Encoding::evex, PF3, 0x72, Form::convert},
    {vcvtne2ps2bf16, "vcvtne2ps2bf16", Encoding::evex, PF2, 0x72, Form::dot},
    {vpdpbusd, "vpdpbusd", Encoding::evex, P66, 0x50, Form::dot},
    {vpdpbusds, "vpdpbusds", Encoding::evex, P66, 0x51, Form::dot},
    {vpdpwssd, "vpdpwssd", Encoding::evex, P66, 0x52, Form::dot},
    {vpdpwssds, "vpdpwssds", Encoding::evex, P66, 0x53, Form::dot},
    {ldtilecfg, "ldtilecfg", Encoding::vex, NP, 0x49, Form::config},
    {sttilecfg, "sttilecfg", Encoding::vex, P66, 0x49, Form::config},
    {tilerelease, "tilerelease", Encoding::vex, NP, 0x49, Form::release},
    {tilezero, "tilezero", Encoding::vex, PF2, 0x49, Form::zero},
    {tileloadd, "tileloadd", Encoding::vex, PF2, 0x4B, Form::rows},
    {tileloaddt1, "tileloaddt1", Encoding::vex, P66, 0x4B, Form::rows},
    {tilestored, "tilestored", Encoding::vex, PF3, 0x4B, Form::rows},
    {tdpbf16ps, "tdpbf16ps", Encoding::vex, PF3, 0x5C, Form::tile_product},
    {tdpbssd, "tdpbssd", Encoding::vex, PF2, 0x5E, Form::tile_product},
    {tdpbsud, "tdpbsud", Encoding::vex, PF3, 0x5E, Form::tile_product},
    {tdpbusd, "tdpbusd", Encoding::vex, P66, 0x5E, Form::tile_product},
    {tdpbuud, "tdpbuud", Encoding::vex, NP, 0x5E, Form::tile_product},
};

constexpr uint8_t MAP_0F38 = 2;

// The fields of a VEX or EVEX prefix, with inverted bits set right.
struct Fields {
  Encoding encoding;
  bool r, x, b, r2, v2, w;  // r2 and v2: R' and V'
  uint8_t map, vvvv, prefix, length, mask;
  bool zeroing, broadcast;
};

const uint8_t* parse_prefix(const uint8_t* code, Fields& f) {
  const bool evex = code[0] == 0x62;
  if (!evex && code[0] != 0xC4) return nullptr;  // C5 is of the map 0F
  f = {};
  f.encoding = evex ? Encoding::evex : Encoding::vex;
  const uint8_t p0 = code[1], p1 = code[2];
  f.r = !(p0 & 0x80);
  f.x = !(p0 & 0x40);
  f.b = !(p0 & 0x20);
  f.w = p1 & 0x80;
  f.vvvv = ~(p1 >> 3) & 15;
  f.prefix = p1 & 3;
  if (!evex) {
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

bool fits(Form form, uint8_t modrm) {
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

const Row* find(const Fields& f, uint8_t opcode, uint8_t modrm) {
  for (const Row& row : TABLE) {
    if (row.encoding == f.encoding && row.prefix == f.prefix && row.opcode == opcode &&
        fits(row.form, modrm)) {
      return &row;
    }
  }
  return nullptr;
}

int32_t read32(const uint8_t* code) {
  return static_cast<int32_t>(code[0] | code[1] << 8 | code[2] << 16 |
                              static_cast<uint32_t>(code[3]) << 24);
}

// The memory operand after `modrm`; returns what follows it.
const uint8_t* parse_memory(const uint8_t* code, const Fields& f, uint8_t modrm, int unit,
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
    i.displacement = read32(code);
    return code + 4;
  }
  if (mode == 1) i.displacement = static_cast<int8_t>(*code++) * unit;
  return code;
}

bool valid_vector(const Row& row, const Fields& f, bool memory) {
  if (f.w || f.length == 3) return false;
  if (f.zeroing && f.mask == 0) return false;
  if (f.broadcast && !memory) return false;  // would round as it says
  return row.form == Form::dot || (f.vvvv == 0 && !f.v2);
}

bool valid_tile(const Row& row, const Fields& f, const Instruction& i) {
  if (f.w || f.length != 0) return false;
  if (row.form == Form::tile_product) {
    return i.destination < 8 && i.first < 8 && i.second < 8 && i.destination != i.first &&
           i.destination != i.second && i.first != i.second;
  }
  if (row.form == Form::rows && i.index == NONE) return false;  // the stride would be missing
  const bool tile = row.form == Form::zero || row.form == Form::rows;
  return f.vvvv == 0 && (tile ? i.destination < 8 : (i.destination & 7) == 0);
}

}  // namespace

bool decode(const uint8_t* code, Instruction& i) {
  Fields f;
  const uint8_t* at = parse_prefix(code, f);
  if (!at || f.map != MAP_0F38) return false;
  const uint8_t opcode = at[0], modrm = at[1];
  at += 2;
  const Row* row = find(f, opcode, modrm);
  if (!row) return false;
  const bool vector = f.encoding == Encoding::evex, memory = modrm < 0xC0;
  i = {};
  i.operation = row->operation;
  i.vector_bytes = vector ? 16 << f.length : 0;
  i.destination = ((modrm >> 3) & 7) | f.r << 3 | f.r2 << 4;
  i.first = f.vvvv | f.v2 << 4;
  i.mask = f.mask;
  i.zeroing = f.zeroing;
  i.broadcast = f.broadcast;
  if (memory) {
    const int unit = !vector ? 1 : f.broadcast ? 4 : i.vector_bytes;
    at = parse_memory(at, f, modrm, unit, i);
  } else {
    i.second = (modrm & 7) | f.b << 3 | (vector && f.x) << 4;
  }
  i.length = static_cast<uint8_t>(at - code);
  return vector ? valid_vector(*row, f, memory) : valid_tile(*row, f, i);
}

const char* name(Operation operation) { return TABLE[static_cast<int>(operation)].name; }

}  // namespace hk::test
