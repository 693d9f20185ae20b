#include "loader/line_table.hpp"

#include <algorithm>
#include <filesystem>
#include <vector>

namespace hk::emulator {
namespace {

// Constants of DWARF 5 (sections 6.2, 7.5.5 and 7.22) that line tables in 32-bit DWARF use.
enum Form : uint64_t {
  kString = 0x08,
  kData1 = 0x0b,
  kData2 = 0x05,
  kData4 = 0x06,
  kData8 = 0x07,
  kData16 = 0x1e,
  kBlock = 0x09,
  kUdata = 0x0f,
  kStrp = 0x0e,
  kLineStrp = 0x1f
};
enum Content : uint64_t { kPath = 1, kDirectoryIndex = 2 };
enum Standard : uint8_t {
  kCopy = 1,
  kAdvancePc,
  kAdvanceLine,
  kSetFile,
  kSetColumn,
  kNegateStatement,
  kSetBasicBlock,
  kConstAddPc,
  kFixedAdvancePc,
  kSetPrologueEnd,
  kSetEpilogueBegin,
  kSetIsa
};
enum Extended : uint8_t { kEndSequence = 1, kSetAddress = 2 };

struct FileEntry {
  std::string path;
  uint64_t directory = 0;
};

// Length of the UTF-8 character at the begin of `text`; 0: there is none (RFC 3629, section 4).
size_t character_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? uint8_t(text[i]) : uint8_t(0); };
  const auto within = [&](size_t i, int low, int high) {
    return byte(i) >= low && byte(i) <= high;
  };
  const auto tail = [&](size_t i) { return within(i, 0x80, 0xbf); };
  const int first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return tail(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool second = within(1, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf);
    return second && tail(2) ? 3 : 0;
  }
  if (first < 0xf0 || first > 0xf4) return 0;
  const bool second = within(1, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf);
  return second && tail(2) && tail(3) ? 4 : 0;
}

// The text with ? in place of bytes that are not UTF-8, which no string of Python can hold.
std::string readable(std::string text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = character_length(std::string_view(text).substr(at));
    if (length == 0) text[at] = '?';
    at += std::max<size_t>(length, 1);
  }
  return text;
}

class Unit {
 public:
  Unit(const Elf& elf, ByteReader reader, LineTable& table)
      : elf_(elf), reader_(std::move(reader)), table_(table) {}

  void read() {
    read_header();
    while (reader_.remaining()) step();
  }

 private:
  void read_header() {
    const auto version = reader_.read<uint16_t>();
    if (version != 4 && version != 5)
      reader_.fail("is of DWARF version " + std::to_string(version) + ": 4 or 5 expected");
    if (version == 5) reader_.take(2);  // address and segment selector size
    const auto header_length = reader_.read<uint32_t>();
    const uint64_t program = reader_.at() + header_length;
    min_instruction_ = reader_.read<uint8_t>();
    reader_.take(2);  // operations per instruction, default is_stmt
    line_base_ = reader_.read<int8_t>();
    line_range_ = reader_.read<uint8_t>();
    opcode_base_ = reader_.read<uint8_t>();
    if (line_range_ == 0 || opcode_base_ == 0) reader_.fail("has a line range or opcode base of 0");
    for (int i = 1; i < opcode_base_; ++i) operands_.push_back(reader_.read<uint8_t>());
    directories_ = version == 5 ? read_entries() : read_paths(false);
    files_ = version == 5 ? read_entries() : read_paths(true);
    reader_.seek(program);
  }

  // Reads the directories or files of DWARF 4 (section 6.2.4), which are numbered from 1 on:
  // number 0 is the folder of the compilation.
  std::vector<FileEntry> read_paths(bool files) {
    std::vector<FileEntry> entries(1);
    for (std::string_view path; !(path = reader_.c_string()).empty();) {
      FileEntry& entry = entries.emplace_back(FileEntry{std::string(path)});
      if (!files) continue;
      entry.directory = reader_.uleb();
      reader_.uleb();  // time of the last change
      reader_.uleb();  // size
    }
    return entries;
  }

  std::vector<FileEntry> read_entries() {
    std::vector<std::pair<uint64_t, uint64_t>> formats(reader_.read<uint8_t>());
    for (auto& [content, form] : formats) {
      content = reader_.uleb();
      form = reader_.uleb();
    }
    const uint64_t count = reader_.uleb();
    if (count > reader_.remaining()) reader_.fail("ends early");
    std::vector<FileEntry> entries(count);
    for (FileEntry& entry : entries)
      for (auto [content, form] : formats) {
        uint64_t number = 0;
        const std::string text = read_form(form, number);
        if (content == kPath) entry.path = text;
        if (content == kDirectoryIndex) entry.directory = number;
      }
    return entries;
  }

  std::string read_form(uint64_t form, uint64_t& number) {
    switch (form) {
      case kString: return std::string(reader_.c_string());
      case kStrp: return string_in(".debug_str");
      case kLineStrp: return string_in(".debug_line_str");
      case kData1: number = reader_.read<uint8_t>(); return "";
      case kData2: number = reader_.read<uint16_t>(); return "";
      case kData4: number = reader_.read<uint32_t>(); return "";
      case kData8: number = reader_.read<uint64_t>(); return "";
      case kData16: reader_.take(16); return "";
      case kUdata: number = reader_.uleb(); return "";
      case kBlock: reader_.take(reader_.uleb()); return "";
      default: reader_.fail("uses form " + std::to_string(form) + ", which is not read");
    }
  }

  std::string string_in(std::string_view section) {
    ByteReader strings(elf_.section(section).bytes, "section " + std::string(section));
    strings.seek(reader_.read<uint32_t>());
    return std::string(strings.c_string());
  }

  void step() {
    const auto opcode = reader_.read<uint8_t>();
    if (opcode >= opcode_base_) {
      const unsigned adjusted = opcode - opcode_base_;
      address_ += adjusted / line_range_ * min_instruction_;
      line_ += uint64_t(line_base_ + int(adjusted % line_range_));
      return emit();
    }
    switch (opcode) {
      case 0: return extended();
      case kCopy: return emit();
      case kAdvancePc: address_ += reader_.uleb() * min_instruction_; return;
      case kAdvanceLine: line_ += uint64_t(reader_.sleb()); return;
      case kSetFile: file_ = reader_.uleb(); return;
      case kConstAddPc: address_ += (255u - opcode_base_) / line_range_ * min_instruction_; return;
      case kFixedAdvancePc: address_ += reader_.read<uint16_t>(); return;
      default:
        for (int i = 0; i < operands_[opcode - 1u]; ++i) reader_.uleb();
    }
  }

  void extended() {
    const uint64_t size = reader_.uleb();
    if (size == 0) return;
    const uint64_t end = reader_.at() + size;
    const auto opcode = reader_.read<uint8_t>();
    if (opcode == kSetAddress) address_ = reader_.read<uint64_t>();
    if (opcode == kEndSequence) {
      table_.insert_or_assign(address_, "");
      address_ = 0, line_ = 1, file_ = 1;
    }
    reader_.seek(end);
  }

  // Adds a row. It replaces an earlier row for the same address, which spans no bytes. Line 0:
  // none.
  void emit() {
    std::string place;
    if (line_ != 0 && file_ < files_.size()) {
      const FileEntry& file = files_[file_];
      std::filesystem::path path(file.path);
      if (path.is_relative() && file.directory < directories_.size())
        path = std::filesystem::path(directories_[file.directory].path) / path;
      place = readable(path.string()) + ":" + std::to_string(line_);
    }
    table_.insert_or_assign(address_, std::move(place));
  }

  const Elf& elf_;
  ByteReader reader_;
  LineTable& table_;
  unsigned min_instruction_ = 1, line_range_ = 1;
  int line_base_ = 0, opcode_base_ = 1;
  std::vector<uint8_t> operands_;
  std::vector<FileEntry> directories_, files_;
  uint64_t address_ = 0, file_ = 1;
  uint64_t line_ = 1;  // unsigned, so that it wraps if the table is broken
};

}  // namespace

LineTable read_line_table(const Elf& elf) {
  LineTable table;
  const Section* section = elf.find(".debug_line");
  if (!section) return table;
  ByteReader reader(section->bytes, "section .debug_line");
  while (reader.remaining()) {
    const auto size = reader.read<uint32_t>();
    if (size >= 0xfffffff0) reader.fail("is in 64-bit DWARF, which is not read");
    Unit(elf, ByteReader(reader.take(size), "section .debug_line"), table).read();
  }
  return table;
}

}  // namespace hk::emulator
