// The vector and matrix instructions of one instruction set of the host.
#include "semantics/lanes.hpp"

namespace hk::emulator::HK_ISA {

void add_moves(Semantics&, Arch);
void add_integer(Semantics&, Arch);
void add_float(Semantics&, Arch);
void add_order(Semantics&, Arch);
void add_transcendental(Semantics&, Arch);
void add_convert(Semantics&, Arch);
void add_convert_narrow(Semantics&, Arch);
void add_compare(Semantics&, Arch);
void add_packed(Semantics&, Arch);
void add_matrix(Semantics&, Arch);
void add_sparse_matrix(Semantics&, Arch);

void add_all(Semantics& all, Arch arch) {
  add_moves(all, arch);
  add_integer(all, arch);
  add_float(all, arch);
  add_order(all, arch);
  add_transcendental(all, arch);
  add_convert(all, arch);
  add_convert_narrow(all, arch);
  add_compare(all, arch);
  add_packed(all, arch);
  add_matrix(all, arch);
  add_sparse_matrix(all, arch);
}

}  // namespace hk::emulator::HK_ISA
