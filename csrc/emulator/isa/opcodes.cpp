#include "isa/opcodes.hpp"

#include <array>
#include <deque>
#include <stdexcept>
#include <string>

#include "semantics/semantics.hpp"

namespace hk::emulator {
namespace {

// Compares of one type. VOPC follows a pattern: condition in the low bits, then cmpx, then the
// type.
struct Compares {
  uint16_t number;  // number of v_cmp_f_<type>
  uint16_t cmpx;    // distance to v_cmpx
  std::string_view type;
  std::span<const std::string_view> conditions;
};
constexpr std::string_view kFloatConditions[] = {"f",   "lt",  "eq",  "le",  "gt",  "lg",
                                                 "ge",  "o",   "u",   "nge", "nlg", "ngt",
                                                 "nle", "neq", "nlt", "tru"};
constexpr std::string_view kIntConditions[] = {"f", "lt", "eq", "le", "gt", "ne", "ge", "t"};
constexpr std::string_view kClass[] = {"class"};
constexpr Compares kCompares[] = {
    {0x10, 1, "f32", kClass},
    {0x12, 1, "f64", kClass},
    {0x14, 1, "f16", kClass},
    {0x20, 16, "f16", kFloatConditions},
    {0x40, 16, "f32", kFloatConditions},
    {0x60, 16, "f64", kFloatConditions},
    {0xa0, 16, "i16", kIntConditions},
    {0xa8, 16, "u16", kIntConditions},
    {0xc0, 16, "i32", kIntConditions},
    {0xc8, 16, "u32", kIntConditions},
    {0xe0, 16, "i64", kIntConditions},
    {0xe8, 16, "u64", kIntConditions},
};

OperandType parse_type(std::string_view text) {
  using Role = OperandType::Role;
  if (text == "m") return {Role::mask, 'b', 64, 1};
  if (text == "k") return {Role::simm16};
  if (text == "@") return {Role::tied};
  OperandType type{Role::any};
  if (text[0] == 's') type.role = Role::sgpr;
  if (text[0] == 'v') type.role = Role::vgpr;
  if (text[0] == 'a') type.role = Role::agpr;
  const size_t digits = text.find_first_of("0123456789");
  if (type.role == Role::any) type.base = text.starts_with("bf") ? 'B' : text[0];
  if (text.starts_with("bf8") || text.starts_with("fp8")) type.base = 'b';
  const size_t times = text.find('x');
  int bits = std::stoi(std::string(text.substr(digits, times - digits)));
  int count = times == std::string_view::npos ? 1 : std::stoi(std::string(text.substr(times + 1)));
  for (; bits > 64; bits /= 2) count *= 2;  // b128: two of 64
  if (bits == 48) bits = 32, count = count * 3 / 2;
  type.bits = uint8_t(bits);
  type.count = uint8_t(count);
  return type;
}

int parse_list(std::string_view list, OperandType* types) {
  int n = 0;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    types[n++] = parse_type(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return n;
}

class Table {
 public:
  explicit Table(Arch arch) : arch_(arch) {
    for (auto rows : {scalar_rows(), vector_rows(), vector3_rows(), packed_rows(), matrix_rows(),
                      lds_rows(), vmem_rows()})
      for (const Rows& group : rows)
        for (const Row& row : group.rows) add(group.format, group.cls, row);
    for (const Compares& compares : kCompares) add(compares);
  }

  const OpcodeEntry* find(Format format, unsigned number, bool lds) const {
    const auto& entries = (lds ? lds_ : by_number_)[size_t(format)];
    return number < entries.size() ? entries[number] : nullptr;
  }
  const std::deque<OpcodeEntry>& entries() const { return entries_; }

 private:
  void add(Format format, Class cls, const Row& row) {
    if (row.flags & (arch_ == Arch::gfx950 ? kGfx942 : kGfx950)) return;
    OpcodeEntry& entry = entries_.emplace_back();
    entry.mnemonic = row.mnemonic;
    entry.cls = cls;
    entry.reads = uint8_t(row.flags);
    entry.writes = uint8_t(row.flags >> 8);
    entry.execute = find_semantics(row.mnemonic, arch_);
    entry.format = format;
    entry.number = row.number;
    entry.flags = row.flags;
    const size_t equals = row.signature.find('=');
    entry.num_dst = uint8_t(parse_list(row.signature.substr(0, equals), entry.dst));
    entry.num_src = uint8_t(parse_list(row.signature.substr(equals + 1), entry.src));
    put(by_number_, format, row.number, entry);
    if (format == Format::mubuf && cls == Class::vmem_load) {  // the LDS bit makes it a copy
      OpcodeEntry& copy = entries_.emplace_back(entry);
      copy.cls = Class::lds_copy;
      copy.reads |= kM0;
      put(lds_, format, row.number, copy);
    }
    if (row.flags & kNoVop3) return;
    if (format == Format::vop1) put(by_number_, Format::vop3, 0x140 + row.number, entry);
    if (format == Format::vop2) put(by_number_, Format::vop3, 0x100 + row.number, entry);
    if (format == Format::vopc) put(by_number_, Format::vop3, row.number, entry);
  }

  void add(const Compares& compares) {
    for (uint16_t cmpx : {0, 1})
      for (uint16_t i = 0; i < compares.conditions.size(); ++i) {
        const std::string_view condition = compares.conditions[i];
        const std::string type(compares.type);
        const std::string& name = names_.emplace_back((cmpx ? "v_cmpx_" : "v_cmp_") +
                                                      std::string(condition) + "_" + type);
        const std::string signature = "m=" + type + "," + (condition == "class" ? "u32" : type);
        add(Format::vopc, Class::valu,
            {uint16_t(compares.number + i + cmpx * compares.cmpx), name, signature,
             cmpx ? kWritesExec : 0u});
      }
  }

  using Index = std::array<std::vector<const OpcodeEntry*>, size_t(Format::count)>;
  static void put(Index& index, Format format, unsigned number, const OpcodeEntry& entry) {
    auto& entries = index[size_t(format)];
    if (entries.size() <= number) entries.resize(number + 1);
    if (entries[number]) throw std::logic_error("opcode twice: " + std::string(entry.mnemonic));
    entries[number] = &entry;
  }

  Arch arch_;
  std::deque<OpcodeEntry> entries_;  // a deque, so that addresses stay valid
  std::deque<std::string> names_;
  Index by_number_, lds_;
};

const Table& table(Arch arch) {
  static const Table gfx942(Arch::gfx942), gfx950(Arch::gfx950);
  return arch == Arch::gfx950 ? gfx950 : gfx942;
}

}  // namespace

const OpcodeEntry* find_opcode(Arch arch, Format format, unsigned number, bool lds) {
  return table(arch).find(format, number, lds);
}

std::vector<const OpcodeEntry*> all_opcodes(Arch arch) {
  std::vector<const OpcodeEntry*> all;
  for (const OpcodeEntry& entry : table(arch).entries()) all.push_back(&entry);
  return all;
}

}  // namespace hk::emulator
