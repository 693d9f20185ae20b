#include "kernel.hpp"

#include <cstdio>
#include <string>

namespace hk::hip {

void check_owner(const Library& library, Handle stream, int device) {
  const int owner = library.device_of(stream);
  if (owner == device) return;
  char handle[32];
  std::snprintf(handle, sizeof handle, "%#zx", size_t(stream));
  throw Unusable{std::string("stream ") + handle + " is of device " + std::to_string(owner) +
                 ", tensors of " + std::to_string(device)};
}

}  // namespace hk::hip
