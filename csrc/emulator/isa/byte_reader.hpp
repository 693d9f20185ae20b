// Reads little-endian values from bytes that may be truncated or wrong, and checks every access.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "loader/code_object.hpp"

namespace hk::emulator {

using Bytes = std::span<const std::byte>;

class ByteReader {
 public:
  // `what` names the bytes in errors, as in "the metadata".
  ByteReader(Bytes bytes, std::string what) : bytes_(bytes), what_(std::move(what)) {}

  template <class T>
  T read() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  Bytes take(uint64_t size) {
    if (size > remaining()) fail("ends early");
    const Bytes taken = bytes_.subspan(at_, size);
    at_ += size;
    return taken;
  }
  std::string_view text(uint64_t size) {
    const Bytes taken = take(size);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  std::string_view c_string() {
    const void* end = remaining() ? std::memchr(bytes_.data() + at_, 0, remaining()) : nullptr;
    if (!end) fail("has a string without end");
    const std::string_view found =
        text(uint64_t(static_cast<const std::byte*>(end) - bytes_.data()) - at_);
    ++at_;
    return found;
  }
  uint64_t uleb() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = read<uint8_t>();
      if (shift < 64) value |= uint64_t(byte & 0x7f) << shift;
      if (!(byte & 0x80)) return value;
    }
  }
  int64_t sleb() {
    uint64_t value = 0;
    for (int shift = 0;;) {
      const auto byte = read<uint8_t>();
      if (shift < 64) value |= uint64_t(byte & 0x7f) << shift;
      shift += 7;
      if (byte & 0x80) continue;
      if (shift < 64 && byte & 0x40) value |= ~uint64_t(0) << shift;
      return int64_t(value);
    }
  }

  void seek(uint64_t at) {
    if (at > bytes_.size()) fail("ends early");
    at_ = at;
  }
  uint64_t at() const { return at_; }
  uint64_t remaining() const { return bytes_.size() - at_; }
  [[noreturn]] void fail(const std::string& how) const { throw LoadError(what_ + " " + how); }

 private:
  Bytes bytes_;
  std::string what_;
  uint64_t at_ = 0;
};

}  // namespace hk::emulator
