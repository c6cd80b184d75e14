// The link over which a group of a mesh communicates, and its speed for one rank while all groups
// communicate. Pure.
#ifndef GEMINID_TRAINING_MESHES_LINKS_H_
#define GEMINID_TRAINING_MESHES_LINKS_H_

#include <cstdint>

#include "training/forecast/problem.h"

namespace geminid::parallel {

// The ranks r, r + stride, r + 2 stride ... All groups along one axis of a mesh, or along
// neighbouring axes, have this form.
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

// A node has job.ranks_per_node() consecutive ranks. A group within a node uses the peers' link. A
// larger group is a ring, and all rings that leave a node share its network adapters. If groups
// fill whole nodes, `stride` rings leave a node, but at most one for each of its ranks. Other
// groups count with twice that number, which is the most.
Link LinkOf(const GroupShape& group, const forecast::Job& job);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_LINKS_H_
