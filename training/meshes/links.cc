#include "training/meshes/links.h"

#include <algorithm>

namespace geminid::parallel {

Link LinkOf(const GroupShape& group, const forecast::Job& job) {
  const forecast::Hardware& hardware = job.hardware;
  const std::int64_t node = job.ranks_per_node();
  const std::int64_t span = group.stride * group.size;
  if (group.size <= 1 || job.nodes == 1 || node % span == 0) {
    return {.bytes_per_second = hardware.peer_bytes_per_second,
            .message_seconds = hardware.peer_message_seconds};
  }
  const bool fills_nodes =
      span % node == 0 && (node % group.stride == 0 || group.stride % node == 0);
  const std::int64_t rings = std::min(node, (fills_nodes ? 1 : 2) * group.stride);
  double rate = hardware.network_bytes_per_second / static_cast<double>(rings);
  if (group.stride < node) rate = std::min(rate, hardware.peer_bytes_per_second);
  return {.bytes_per_second = rate,
          .message_seconds = hardware.network_message_seconds,
          .crosses_nodes = true};
}

}  // namespace geminid::parallel
