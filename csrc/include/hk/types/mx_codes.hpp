// Codes of the elements of MX formats: tags, not numbers to compute with. Those of 8 bits are E4m3.
#pragma once

namespace hk {

struct E2m3 {};
struct E3m2 {};
struct E2m1 {};

}  // namespace hk
