#include "checks/findings.hpp"

#include <cstdio>

namespace hk::emulator {

void Findings::add(std::string check, std::string message, const Place& place) {
  if (int(list_.size()) >= limit_) return;
  if (!seen_.insert({check, place.instruction, place.other}).second) return;
  const auto& text = *kernel_->text;
  const Instruction& in = text[place.instruction];
  Finding f;
  f.check = std::move(check);
  f.kernel = kernel_->name;
  f.instruction = to_string(in);
  f.pc = in.pc;
  if (place.other >= 0) {
    f.other_instruction = to_string(text[size_t(place.other)]);
    f.other_pc = text[size_t(place.other)].pc;
  }
  f.workgroup = workgroup_;
  f.wave = place.wave;
  f.lane = place.lane;
  f.address = place.address;
  if (kernel_->lines) f.source = (*kernel_->lines)[place.instruction];
  f.message = f.check + ": " + std::move(message) + "; in " + f.kernel + " at " + hex(f.pc) + " `" +
              f.instruction + "`";
  if (place.other >= 0) f.message += ", with " + hex(f.other_pc) + " `" + f.other_instruction + "`";
  f.message += "; workgroup " + std::to_string(f.workgroup) + ", wave " + std::to_string(f.wave);
  if (f.lane >= 0) f.message += ", lane " + std::to_string(f.lane);
  if (!f.source.empty()) f.message += "; " + f.source;
  list_.push_back(std::move(f));
}

std::string register_name(int index) {
  return index < 256 ? "v" + std::to_string(index) : "a" + std::to_string(index - 256);
}

std::string scalar_name(int encoding) {
  switch (encoding) {
    case 102: return "flat_scratch_lo";
    case 103: return "flat_scratch_hi";
    case kSgprVcc: return "vcc_lo";
    case kSgprVcc + 1: return "vcc_hi";
    case kSgprM0: return "m0";
    case kSgprExec: return "exec_lo";
    case kSgprExec + 1: return "exec_hi";
    default: return "s" + std::to_string(encoding);
  }
}

std::string hex(uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace hk::emulator
