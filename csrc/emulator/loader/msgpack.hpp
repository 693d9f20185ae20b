// The subset of MessagePack in code objects' metadata: maps, arrays, strings, integers, booleans.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "isa/byte_reader.hpp"

namespace hk::emulator {

struct MsgPack {
  enum class Type { nil, integer, string, array, map } type = Type::nil;
  uint64_t integer = 0;  // booleans, too; negative numbers in two's complement
  std::string string;
  std::vector<MsgPack> array;
  std::vector<std::pair<std::string, MsgPack>> map;

  const MsgPack* find(std::string_view key) const;  // null if absent or not a map
  uint64_t integer_or(std::string_view key, uint64_t otherwise) const;
  std::string string_or(std::string_view key, std::string otherwise) const;
};

MsgPack read_msgpack(Bytes bytes);  // LoadError

}  // namespace hk::emulator
