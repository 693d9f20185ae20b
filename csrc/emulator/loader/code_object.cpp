#include "loader/code_object.hpp"

#include <algorithm>

#include "isa/decode.hpp"
#include "loader/elf.hpp"
#include "loader/line_table.hpp"
#include "loader/msgpack.hpp"

namespace hk::emulator {
namespace {

constexpr uint32_t kNoteSection = 7, kMetadataNote = 32;

MsgPack read_metadata(const Elf& elf) {
  for (const Section& section : elf.sections) {
    if (section.type != kNoteSection) continue;
    ByteReader reader(section.bytes, "section " + section.name);
    while (reader.remaining() >= 12) {
      const auto name_size = reader.read<uint32_t>(), size = reader.read<uint32_t>(),
                 type = reader.read<uint32_t>();
      const auto padded = [](uint64_t bytes) { return (bytes + 3) & ~uint64_t(3); };
      const std::string_view name = reader.text(padded(name_size));
      const Bytes description = reader.take(size);
      if (name.starts_with("AMDGPU") && type == kMetadataNote) return read_msgpack(description);
      reader.take(std::min<uint64_t>(padded(size) - size, reader.remaining()));
    }
  }
  throw LoadError("code object without the metadata note of code object version 3 or later");
}

// Reads a kernel descriptor of 64 bytes (LLVM's AMDGPU usage, "Kernel Descriptor").
void read_descriptor(Kernel& kernel, const Elf& elf, const Symbol& symbol, const Section& text) {
  ByteReader reader(elf.at_address(symbol.address, 64, "kernel descriptor " + symbol.name),
                    symbol.name);
  kernel.static_lds = reader.read<uint32_t>();
  kernel.scratch = reader.read<uint32_t>();
  kernel.kernarg_size = reader.read<uint32_t>();
  reader.seek(16);
  const uint64_t entry = symbol.address + uint64_t(reader.read<int64_t>());
  reader.seek(44);
  kernel.rsrc3 = reader.read<uint32_t>();
  kernel.rsrc1 = reader.read<uint32_t>();
  kernel.rsrc2 = reader.read<uint32_t>();
  kernel.properties = reader.read<uint16_t>();
  kernel.kernarg_preload = reader.read<uint16_t>();
  if (entry < text.address || entry - text.address >= text.bytes.size() ||
      (entry - text.address) % 4)
    throw LoadError("kernel descriptor " + symbol.name + ": its entry lies outside .text");
  kernel.entry = entry - text.address;
  // Registers are allocated in granules of 8 VGPRs and 16 SGPRs; AGPRs follow from accum_offset on.
  const uint32_t registers = ((kernel.rsrc1 & 63) + 1) * 8,
                 accum_offset = ((kernel.rsrc3 & 63) + 1) * 4;
  kernel.vgprs = std::min(registers, accum_offset);
  kernel.agprs = registers - kernel.vgprs;
  kernel.sgprs = ((kernel.rsrc1 >> 6 & 15) / 2 + 1) * 16;
}

void read_kernel_metadata(Kernel& kernel, const MsgPack& metadata) {
  if (kernel.kernarg_size == 0)  // a descriptor may leave it out, like those of AITER's kernels
    kernel.kernarg_size = uint32_t(metadata.integer_or(".kernarg_segment_size", 0));
  kernel.max_block = uint32_t(metadata.integer_or(".max_flat_workgroup_size", 1024));
  kernel.vgpr_spills = uint32_t(metadata.integer_or(".vgpr_spill_count", 0));
  kernel.sgpr_spills = uint32_t(metadata.integer_or(".sgpr_spill_count", 0));
  const MsgPack* arguments = metadata.find(".args");
  if (!arguments) return;
  for (const MsgPack& argument : arguments->array) {
    KernelArgument& added = kernel.arguments.emplace_back();
    added.name = argument.string_or(".name", "");
    added.kind = argument.string_or(".value_kind", "");
    added.offset = uint32_t(argument.integer_or(".offset", 0));
    added.size = uint32_t(argument.integer_or(".size", 0));
    if (uint64_t(added.offset) + added.size > kernel.kernarg_size)
      throw LoadError("kernel " + kernel.name + ": argument at " + std::to_string(added.offset) +
                      " of " + std::to_string(added.size) + " bytes lies outside its " +
                      std::to_string(kernel.kernarg_size) + " bytes of arguments");
  }
}

std::shared_ptr<const std::vector<std::string>> lines_of(
    Bytes file, const Section& text, const std::vector<Instruction>& instructions) {
  if (file.empty()) return nullptr;
  const Elf elf = read_elf(file);
  const Section& their_text = elf.section(".text");
  if (!std::ranges::equal(text.bytes, their_text.bytes))
    throw LoadError("the file with line tables is of another build: its .text differs");
  const LineTable table = read_line_table(elf);
  auto lines = std::make_shared<std::vector<std::string>>();
  for (const Instruction& instruction : instructions) {
    const auto after = table.upper_bound(their_text.address + instruction.pc);
    lines->push_back(after == table.begin() ? "" : std::prev(after)->second);
  }
  return lines;
}

const Symbol& find_symbol(const Elf& elf, const std::string& name) {
  for (const Symbol& symbol : elf.symbols)
    if (symbol.name == name) return symbol;
  throw LoadError("code object without the symbol " + name + " that its metadata names");
}

}  // namespace

std::shared_ptr<CodeObject> CodeObject::load(std::span<const std::byte> file,
                                             std::span<const std::byte> lines) {
  const Elf elf = read_elf(file);
  const Section& text = elf.section(".text");
  const MsgPack metadata = read_metadata(elf);
  DecodedText decoded = decode_text(text.bytes, elf.arch);
  auto object = std::make_shared<CodeObject>();
  object->arch_ = elf.arch;
  const auto source_lines = lines_of(lines, text, decoded.instructions);
  const auto instructions =
      std::make_shared<const std::vector<Instruction>>(std::move(decoded.instructions));
  const auto index = std::make_shared<const std::vector<int32_t>>(std::move(decoded.index_of_pc));
  const auto prepared = std::make_shared<OnceProgram>();
  const MsgPack* kernels = metadata.find("amdhsa.kernels");
  if (!kernels) throw LoadError("metadata without amdhsa.kernels");
  for (const MsgPack& described : kernels->array) {
    Kernel& kernel = object->kernels_.emplace_back();
    kernel.name = described.string_or(".name", "");
    kernel.arch = elf.arch;
    const std::string symbol = described.string_or(".symbol", "");
    if (kernel.name.empty() || symbol.empty())
      throw LoadError("metadata of a kernel without .name or .symbol");
    read_descriptor(kernel, elf, find_symbol(elf, symbol), text);
    read_kernel_metadata(kernel, described);
    if (index->at(kernel.entry / 4) < 0)
      throw LoadError("kernel " + kernel.name + " begins inside an instruction");
    kernel.text = instructions;
    kernel.prepared = prepared;
    kernel.index_of_pc = index;
    kernel.lines = source_lines;
  }
  return object;
}

const Kernel& CodeObject::kernel(const std::string& name) const {
  for (const Kernel& kernel : kernels_)
    if (kernel.name == name) return kernel;
  std::string known;
  for (const Kernel& kernel : kernels_) known += " " + kernel.name;
  throw std::out_of_range("no kernel '" + name + "' in the code object; it has:" + known);
}

}  // namespace hk::emulator
