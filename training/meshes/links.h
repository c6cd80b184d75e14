// The link that a group of a mesh communicates over, and its speed for one rank while all ranks use
// it. Pure.
#ifndef GEMINID_TRAINING_MESHES_LINKS_H_
#define GEMINID_TRAINING_MESHES_LINKS_H_

#include <cstdint>

#include "training/forecast/problem.h"

namespace geminid::parallel {

// Ranks r, r + stride, r + 2 stride ...: all groups along one axis of a mesh, or along neighbouring
// axes, are such.
struct GroupShape {
  std::int64_t stride = 1;
  std::int64_t size = 1;
  friend bool operator==(const GroupShape&, const GroupShape&) = default;
};

struct Link {
  double bytes_per_second = 0;  // of one rank
  double message_seconds = 0;
  bool crosses_nodes = false;
};

// Nodes hold consecutive ranks, job.ranks_per_node() each. A group within a node talks over the
// peers' link. Else it is a ring, and what of all groups' rings leaves a node shares its adapters:
// of groups that fill whole nodes as many rings as the stride is long, or one of every rank where
// that is longer than a node; of others at most twice as many, which is what is taken.
Link LinkOf(const GroupShape& group, const forecast::Job& job);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_LINKS_H_
