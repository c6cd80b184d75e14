// Compares link rates with rings that are walked rank by rank.
#include "training/meshes/links.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "geminid/mesh.h"

namespace geminid::parallel {
namespace {

forecast::Job JobOn(std::uint32_t nodes, std::uint32_t ranks_per_node) {
  forecast::Job job;
  job.nodes = nodes;
  job.ranks = nodes * ranks_per_node;
  job.hardware.peer_bytes_per_second = 300;
  job.hardware.network_bytes_per_second = 200;
  job.hardware.peer_message_seconds = 1;
  job.hardware.network_message_seconds = 2;
  return job;
}

// Every group along `axis` is a ring. All edges that leave a node share the node's adapters.
double WalkedRate(const forecast::Job& job, const collectives::Mesh& mesh, const char* axis) {
  std::vector<int> leaving(job.nodes, 0);
  bool inside = false;
  const auto node_of = [&](int rank) { return rank / static_cast<int>(job.ranks_per_node()); };
  for (int rank = 0; rank < static_cast<int>(job.ranks); ++rank) {
    const std::vector<int> group = mesh.Group(rank, {axis});
    const auto self = std::find(group.begin(), group.end(), rank);
    const int next = self + 1 == group.end() ? group.front() : *(self + 1);
    if (next == rank) continue;
    if (node_of(next) == node_of(rank)) {
      inside = true;
    } else {
      ++leaving[static_cast<std::size_t>(node_of(rank))];
    }
  }
  const int most = *std::max_element(leaving.begin(), leaving.end());
  const double peers = job.hardware.peer_bytes_per_second;
  if (most == 0) return peers;
  const double shared = job.hardware.network_bytes_per_second / most;
  return inside ? std::min(shared, peers) : shared;
}

TEST(LinkOf, AlignedGroups_AreTheRingsThatAreWalked) {
  for (const auto& [nodes, per_node] :
       {std::pair{4u, 8u}, {8u, 8u}, {2u, 4u}, {1u, 8u}, {4u, 1u}}) {
    const forecast::Job job = JobOn(nodes, per_node);
    const int ranks = static_cast<int>(job.ranks);
    for (int inner = 1; inner <= ranks; inner *= 2) {
      for (int size = 1; inner * size <= ranks; size *= 2) {
        const auto mesh = collectives::Mesh::Make(
            {{"outer", ranks / inner / size}, {"along", size}, {"inner", inner}}, ranks);
        ASSERT_TRUE(mesh.ok()) << mesh.status();
        const Link link = LinkOf({.stride = inner, .size = size}, job);
        EXPECT_DOUBLE_EQ(link.bytes_per_second, WalkedRate(job, *mesh, "along"))
            << nodes << " x " << per_node << ", " << mesh->ToString();
        EXPECT_EQ(link.message_seconds, link.crosses_nodes ? 2 : 1);
      }
    }
  }
}

TEST(LinkOf, GroupsThatDoNotFillNodes_AreNeverTakenForFaster) {
  const forecast::Job job = JobOn(6, 4);
  for (const int inner : {1, 2, 3, 4, 6}) {
    for (const int size : {2, 3, 4}) {
      if (24 % (inner * size) != 0) continue;
      const auto mesh = collectives::Mesh::Make(
          {{"outer", 24 / inner / size}, {"along", size}, {"inner", inner}}, 24);
      ASSERT_TRUE(mesh.ok()) << mesh.status();
      EXPECT_LE(LinkOf({.stride = inner, .size = size}, job).bytes_per_second,
                WalkedRate(job, *mesh, "along") * (1 + 1e-12))
          << mesh->ToString();
    }
  }
}

}  // namespace
}  // namespace geminid::parallel
