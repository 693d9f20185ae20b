// Graphs: work that a capture has recorded, and that a launch runs as often as it is asked to.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "hip/hip_types.hpp"

namespace hk::emulator::hip {

struct Node {
  NodeType type;
  std::function<void()> work;  // a kernel's has its argument, a copy's looks its memory up
};

// In the order of the calls: no node depends on a later one.
using Nodes = std::vector<Node>;

struct Graph {
  std::shared_ptr<const Nodes> nodes;
};

// What hipGraphInstantiate makes. Neither it nor its launches need the graph any more.
struct Executable {
  std::shared_ptr<const Nodes> nodes;
};

}  // namespace hk::emulator::hip
