#include "loader/msgpack.hpp"

#include <bit>

namespace hk::emulator {
namespace {

constexpr int kMaxDepth = 16;

// MessagePack is big-endian.
uint64_t big_endian(ByteReader& reader, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8 | reader.read<uint8_t>();
  return value;
}

MsgPack read_value(ByteReader& reader, int depth);

MsgPack read_string(ByteReader& reader, uint64_t size) {
  MsgPack value;
  value.type = MsgPack::Type::string;
  value.string = reader.text(size);
  return value;
}

MsgPack read_array(ByteReader& reader, uint64_t size, int depth) {
  MsgPack value;
  value.type = MsgPack::Type::array;
  if (size > reader.remaining()) reader.fail("ends early");
  for (uint64_t i = 0; i < size; ++i) value.array.push_back(read_value(reader, depth));
  return value;
}

MsgPack read_map(ByteReader& reader, uint64_t size, int depth) {
  MsgPack value;
  value.type = MsgPack::Type::map;
  if (size > reader.remaining()) reader.fail("ends early");
  for (uint64_t i = 0; i < size; ++i) {
    MsgPack key = read_value(reader, depth);
    if (key.type != MsgPack::Type::string) reader.fail("has a key that is not a string");
    value.map.emplace_back(std::move(key.string), read_value(reader, depth));
  }
  return value;
}

MsgPack integer(uint64_t integer) {
  MsgPack value;
  value.type = MsgPack::Type::integer;
  value.integer = integer;
  return value;
}

MsgPack read_value(ByteReader& reader, int depth) {
  if (depth > kMaxDepth) reader.fail("nests too deeply");
  const auto tag = reader.read<uint8_t>();
  if (tag < 0x80) return integer(tag);
  if (tag < 0x90) return read_map(reader, tag & 15, depth + 1);
  if (tag < 0xa0) return read_array(reader, tag & 15, depth + 1);
  if (tag < 0xc0) return read_string(reader, tag & 31);
  if (tag >= 0xe0) return integer(uint64_t(int64_t(int8_t(tag))));
  switch (tag) {
    case 0xc0: return {};
    case 0xc2:
    case 0xc3: return integer(tag & 1);
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf: return integer(big_endian(reader, 1 << (tag - 0xcc)));
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3: {
      const int bytes = 1 << (tag - 0xd0), shift = 64 - 8 * bytes;
      return integer(uint64_t(int64_t(big_endian(reader, bytes) << shift) >> shift));
    }
    case 0xd9:
    case 0xda:
    case 0xdb: return read_string(reader, big_endian(reader, 1 << (tag - 0xd9)));
    case 0xdc:
    case 0xdd: return read_array(reader, big_endian(reader, 2 << (tag - 0xdc)), depth + 1);
    case 0xde:
    case 0xdf: return read_map(reader, big_endian(reader, 2 << (tag - 0xde)), depth + 1);
    default:
      reader.fail("has a value of a type that metadata does not use: tag " + std::to_string(tag));
  }
}

}  // namespace

const MsgPack* MsgPack::find(std::string_view key) const {
  for (const auto& [name, value] : map)
    if (name == key) return &value;
  return nullptr;
}

uint64_t MsgPack::integer_or(std::string_view key, uint64_t otherwise) const {
  const MsgPack* value = find(key);
  return value && value->type == Type::integer ? value->integer : otherwise;
}

std::string MsgPack::string_or(std::string_view key, std::string otherwise) const {
  const MsgPack* value = find(key);
  return value && value->type == Type::string ? value->string : otherwise;
}

MsgPack read_msgpack(Bytes bytes) {
  ByteReader reader(bytes, "the metadata note (MessagePack)");
  return read_value(reader, 0);
}

}  // namespace hk::emulator
