// Graphs: work that a capture has recorded, and that can be launched many times.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "hip/hip_types.hpp"

namespace hk::emulator::hip {

struct Node {
  NodeType type;
  std::function<void()> work;  // includes a kernel's argument; a copy looks its memory up again
};

// Nodes of a graph in the order of the calls; no node depends on a later one.
using Nodes = std::vector<Node>;

struct Graph {
  std::shared_ptr<const Nodes> nodes;
};

// Result of hipGraphInstantiate. It and its launches do not need the graph any more.
struct Executable {
  std::shared_ptr<const Nodes> nodes;
};

}  // namespace hk::emulator::hip
