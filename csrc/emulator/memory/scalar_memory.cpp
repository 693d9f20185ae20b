// Executes s_load and s_buffer_load.
#include <cstring>

#include "memory/buffer_descriptor.hpp"
#include "memory/global_access.hpp"
#include "machine/workgroup.hpp"

namespace hk::emulator {

void execute_scalar_load(Workgroup& g, WaveState& w, const Prepared& p, uint32_t index) {
  const Instruction& in = *p.instruction;
  const Operand& base = in.src[0];
  const bool buffer = base.dwords == 4;
  uint64_t offset = uint64_t(int64_t(in.offset));
  if (in.soffset.kind == Kind::sgpr)
    offset += w.wave.sgpr[in.soffset.index];
  else if (in.soffset.kind == Kind::constant)
    offset += in.soffset.value;
  InFlight& f = w.waits.take();
  f.what = InFlight::What::scalar;
  f.instruction = index;
  f.first = in.dst[0].index;
  f.count = in.dst[0].dwords;

  const BufferDescriptor d(&w.wave.sgpr[buffer ? base.index : 0]);
  const Address start = buffer ? d.base : w.wave.pair(base.index);
  if ((start + offset) % 4 != 0)
    g.findings.add("misaligned", "a scalar load ignores the low bits of " + hex(start + offset),
                   {index, -1, w.index, -1, start + offset});
  GlobalAccess global(g, w, index);
  // a buffer's range check is per dword and gives zeros
  uint32_t dwords = f.count;
  if (buffer && d.stride != 0 && g.checks())
    g.findings.add("ambiguous",
                   "a scalar load from a buffer with a stride: "
                   "what num_records counts is not documented",
                   {index, -1, w.index, -1, start + offset});
  if (buffer) dwords = d.bytes_in_range(offset, 4 * dwords, 4) / 4;
  std::byte* host = dwords ? global.at((start + offset) & ~3ull, dwords * 4, -1) : nullptr;
  global.check_races(RaceShadow::Use::read);
  for (uint32_t i = 0; i < f.count; ++i) {
    uint32_t value = host || i >= dwords ? 0 : kPoisonedRegister;
    if (host && i < dwords) std::memcpy(&value, host + 4 * i, 4);
    f.data[i][0] = value;
    const uint32_t s = f.first + i;
    w.wave.sgpr[s] = kPoisonedRegister;
    w.scalar_pending[s / 64] |= 1ull << s % 64;
  }
  g.counts.bytes[Counts::global_read] += 4u * f.count;
  w.waits.issue_lds(f);
}

}  // namespace hk::emulator
