#pragma once

#include <string_view>

namespace hk::emulator {

inline bool has(std::string_view mnemonic, std::string_view part) {
  return mnemonic.find(part) != mnemonic.npos;
}

}  // namespace hk::emulator
