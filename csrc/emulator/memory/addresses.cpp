#include "memory/addresses.hpp"

#include <bit>

#include "isa/encoding.hpp"
#include "memory/buffer_descriptor.hpp"

namespace hk::emulator {
namespace {

uint32_t scalar_value(const WaveState& w, const Operand& o) {
  return o.kind == Kind::sgpr       ? w.wave.sgpr[o.index]
         : o.kind == Kind::constant ? uint32_t(o.value)
                                    : 0;
}

int row_of(const Operand& o) { return o.index + (o.kind == Kind::agpr ? 256 : 0); }

struct Finder {
  Workgroup& g;
  const WaveState& w;
  const Prepared& p;
  uint32_t index;
  Addresses& out;

  const Instruction& in() const { return *p.instruction; }

  // Reports lanes whose access the public sources define differently.
  void ambiguous(uint64_t lanes, const char* what) const {
    if (!lanes || !g.checks()) return;
    const int lane = std::countr_zero(lanes);
    g.findings.add("ambiguous", what, {index, -1, w.index, lane, out.at[lane]});
  }

  void buffer() {
    const BufferDescriptor d(&w.wave.sgpr[in().resource.index]);
    if (d.swizzle || d.add_lane)
      g.stop("unsupported-instruction", "a swizzled buffer descriptor",
             {index, -1, w.index, -1, d.base});
    const uint32_t soffset = scalar_value(w, in().soffset), bytes = p.memory.bytes;
    const bool indexed = in().idxen && d.stride != 0;
    const uint32_t piece = p.memory.access == Access::atomic ? bytes : std::min(bytes, 4u);
    const int row = row_of(in().src[0]);
    uint64_t wrapped = 0, past_record = 0;
    for (uint64_t left = w.wave.exec(); left; left &= left - 1) {
      const int lane = std::countr_zero(left);
      const uint32_t record = in().idxen ? w.wave.vgpr[row][lane] : 0;
      const uint32_t voffset = in().offen ? w.wave.vgpr[row + in().idxen][lane] : 0;
      const uint32_t offset = voffset + uint32_t(in().offset);  // wraps in 32 bits
      out.at[lane] = d.base + soffset + uint64_t(record) * d.stride + offset;
      wrapped |= uint64_t(offset < voffset) << lane;
      if (indexed) {
        const bool inside = record < d.num_records;
        past_record |= uint64_t(inside && uint64_t(offset) + bytes > d.stride) << lane;
        out.in_range[lane] = uint8_t(inside ? bytes : 0);
      } else {
        out.in_range[lane] = uint8_t(d.bytes_in_range(uint64_t(offset) + soffset, bytes, piece));
      }
    }
    ambiguous(wrapped,
              "a buffer offset that wraps in 32 bits "
              "(LLVM takes a negative VGPR offset for illegal)");
    ambiguous(past_record, "a buffer offset past the stride (out of range by older ISA guides)");
    if (!indexed && soffset > d.num_records)
      ambiguous(w.wave.exec(),
                "a scalar offset past num_records "
                "(the guides' num_records - offset is negative)");
  }

  enum class Where { global, scratch, lds };
  static Where where(Address at) {
    const uint64_t high = at >> 32;
    return high == kSharedAperture >> 32    ? Where::lds
           : high == kPrivateAperture >> 32 ? Where::scratch
                                            : Where::global;
  }

  // Finds the memory of FLAT addresses. The address says which memory; its low half is the address
  // in LDS or scratch.
  void resolve(uint64_t base) {
    uint64_t crossed = 0;
    for (uint64_t left = w.wave.exec(); left; left &= left - 1) {
      const int lane = std::countr_zero(left);
      const Where to = where(out.at[lane]);
      crossed |= uint64_t(to != where(out.at[lane] - base)) << lane;
      if (to == Where::global) continue;
      (to == Where::lds ? out.lds : out.scratch) |= 1ull << lane;
    }
    ambiguous(crossed, "an offset that leads from one aperture to another");
    for (uint64_t left = out.lds | out.scratch; left; left &= left - 1)
      out.at[std::countr_zero(left)] &= 0xffffffffu;
  }

  void flat() {
    const bool scratch = p.memory.space == Space::scratch;
    uint64_t base = uint64_t(int64_t(in().offset));
    if (in().resource.kind == Kind::sgpr)
      base += scratch ? w.wave.sgpr[in().resource.index] : w.wave.pair(in().resource.index);
    const Operand& o = in().src[0];
    const int row = row_of(o);
    for (uint64_t left = w.wave.exec(); left; left &= left - 1) {
      const int lane = std::countr_zero(left);
      uint64_t vector = 0;
      if (o.kind != Kind::none) {
        vector = w.wave.vgpr[row][lane];
        if (o.dwords == 2) vector |= uint64_t(w.wave.vgpr[row + 1][lane]) << 32;
      }
      out.at[lane] = base + vector;
      out.in_range[lane] = p.memory.bytes;
    }
    if (scratch) out.scratch = w.wave.exec();
    if (p.memory.space == Space::flat) resolve(base);
  }
};

}  // namespace

void find_addresses(Workgroup& g, const WaveState& w, const Prepared& p, uint32_t index,
                    Addresses& out) {
  Finder finder{g, w, p, index, out};
  if (p.memory.space == Space::buffer)
    finder.buffer();
  else
    finder.flat();
}

}  // namespace hk::emulator
