// The tile language: wave (types, ops), workgroup (copies, streams, schedule), grid.
// docs/tile-language.md shows how a kernel is written in it.
#pragma once

#include "arch/arch.hpp"
#include "grid.hpp"
#include "ops/convert.hpp"
#include "ops/copy.hpp"
#include "ops/exchange.hpp"
#include "ops/load.hpp"
#include "ops/map.hpp"
#include "ops/mask.hpp"
#include "ops/mma.hpp"
#include "ops/reduce.hpp"
#include "ops/store.hpp"
#include "schedule.hpp"
#include "types/global_view.hpp"
#include "types/register_tile.hpp"
#include "types/row_source.hpp"
#include "types/shared_tile.hpp"
#include "types/tile_ring.hpp"
