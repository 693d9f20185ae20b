#include "grid.hpp"

#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <stdexcept>

#include "hk/args/attention_decode.hpp"
#include "hk/args/attention_merge.hpp"
#include "hk/args/attention_prefill.hpp"
#include "hk/args/gemm.hpp"
#include "hk/args/measure.hpp"
#include "hk/args/quantize_fp8.hpp"
#include "hk/args/quantize_mx.hpp"
#include "hk/args/rows.hpp"
#include "hk/args/traffic.hpp"

namespace hk::hip {
namespace {

struct Function {
  size_t bytes;
  Workgroups (*workgroups)(const void*, TileSize);
  bool more = false;  // whether an argument may go on after these bytes
};

// `flags`: what the kernels that share an argument struct differ in.
template <class Args, bool... flags>
Function of_args() {
  return {sizeof(Args), [](const void* argument, TileSize tile) {
            Args args;
            std::memcpy(&args, argument, sizeof args);
            return workgroups(args, tile, flags...);
          }};
}

// Counts workgroups of any argument that begins with the members of `Args`.
template <class Args>
Function of_first() {
  Function found = of_args<Args>();
  found.more = true;
  return found;
}

const std::map<std::string, Function> kFunctions = {
    {"attention_prefill", of_args<AttentionPrefillArgs, false, false>()},
    {"attention_prefill_grouped", of_args<AttentionPrefillArgs, true, false>()},
    {"attention_part", of_args<AttentionPrefillArgs, false, true>()},
    {"attention_part_grouped", of_args<AttentionPrefillArgs, true, true>()},
    {"attention_decode", of_args<AttentionDecodeArgs>()},
    {"attention_merge", of_args<AttentionMergeArgs>()},
    {"gemm", of_args<GemmArgs>()},
    {"quantize_fp8_rows", of_args<QuantizeFp8Args, true>()},
    {"quantize_fp8_tiles", of_args<QuantizeFp8Args, false>()},
    {"quantize_mx", of_args<QuantizeMxArgs>()},
    {"rows", of_first<RowsArgs>()},
    {"measure", of_args<MeasureArgs>()},
    {"gemv", of_args<GemvArgs>()},
    {"decode", of_args<DecodeArgs>()},
    {"cast", of_args<CastArgs>()},
    {"rotary", of_args<RotaryArgs>()},
    {"norm", of_args<NormArgs>()},
    {"row", of_args<RowArgs>()},
    {"add", of_args<AddArgs>()}};

unsigned checked(int64_t count) {
  if (count < 0 || count > std::numeric_limits<unsigned>::max())
    throw std::invalid_argument("grid: " + std::to_string(count) + " workgroups are not valid");
  return unsigned(count);
}

}  // namespace

GridFunction::GridFunction(const std::string& name, TileSize tile) : tile_(tile) {
  const auto found = kFunctions.find(name);
  if (found == kFunctions.end()) throw std::invalid_argument("grid: no function '" + name + "'");
  if (tile.rows < 1 || tile.columns < 1) throw std::invalid_argument("grid: an empty tile");
  bytes_ = found->second.bytes;
  more_ = found->second.more;
  workgroups_ = found->second.workgroups;
}

Grid GridFunction::of(const void* argument, size_t bytes) const {
  if (bytes < bytes_ || (bytes > bytes_ && !more_))
    throw std::invalid_argument("grid: an argument of " + std::to_string(bytes) +
                                " bytes is not valid: expected " + std::to_string(bytes_) +
                                (more_ ? " or more" : ""));
  const Workgroups found = workgroups_(argument, tile_);
  return {checked(found.x), checked(found.y), checked(found.z)};
}

}  // namespace hk::hip
