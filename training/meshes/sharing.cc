#include "training/meshes/sharing.h"

#include <algorithm>

#include "training/meshes/axes.h"
#include "training/meshes/links.h"
#include "training/meshes/mesh_rank_work.h"

namespace geminid::parallel {
namespace {

using forecast::Job;

GroupShape GroupOfHost(const MeshSpec& mesh, const Job& job) {
  return {.stride = SharingGroup(mesh).stride, .size = SharingRanksOfHost(mesh, job)};
}

double BytesOf(const SharedChunks& chunks, const GroupShape& group) {
  const auto ranks = static_cast<double>(group.size);
  return chunks.bytes * (ranks - 1) / ranks;
}

double SecondsOf(const SharedChunks& chunks, const GroupShape& group, const Job& job) {
  if (group.size == 1) return 0;
  const Link link = LinkOf(group, job);
  const double messages = chunks.collectives * static_cast<double>(group.size - 1);
  return BytesOf(chunks, group) / link.bytes_per_second + messages * link.message_seconds +
         chunks.collectives * job.hardware.exchange_seconds;
}

}  // namespace

Sharing SharingOf(const MeshSpec& mesh, const Job& job, const forecast::GatherTraffic& pass,
                  std::uint64_t micro_batches) {
  if (!GathersWithinHosts(mesh, job)) {
    return {.over_all = {pass.bytes, static_cast<double>(pass.collectives)}, .within_host = {}};
  }
  const auto passes = static_cast<double>(micro_batches);
  Sharing sharing;
  sharing.within_host = {
      pass.gather_bytes - pass.chunk_bytes / passes,
      static_cast<double>(pass.gathers) - static_cast<double>(pass.chunks) / passes};
  sharing.over_all = {pass.bytes - sharing.within_host.bytes,
                      static_cast<double>(pass.collectives) - sharing.within_host.collectives};
  return sharing;
}

double SharingSeconds(const MeshSpec& mesh, const Job& job, const Sharing& sharing) {
  return SecondsOf(sharing.over_all, SharingGroup(mesh), job) +
         SecondsOf(sharing.within_host, GroupOfHost(mesh, job), job);
}

double SharedBytes(const MeshSpec& mesh, const Job& job, const Sharing& sharing) {
  return BytesOf(sharing.over_all, SharingGroup(mesh)) +
         BytesOf(sharing.within_host, GroupOfHost(mesh, job));
}

std::int64_t SharingRanksOfHost(const MeshSpec& mesh, const Job& job) {
  const GroupShape group = SharingGroup(mesh);
  return std::clamp<std::int64_t>(job.ranks_per_node() / group.stride, 1, group.size);
}

bool GathersWithinHosts(const MeshSpec& mesh, const Job& job) {
  return mesh.within_host && LinkOf(SharingGroup(mesh), job).crosses_nodes;
}

absl::Status CheckWithinHosts(const MeshSpec& mesh, const Job& job) {
  if (!mesh.within_host) return absl::OkStatus();
  if (job.nodes == 1) {
    return RefuseParallel(
        "zero=3:host saves traffic between hosts, and all ranks are on one host; take zero=3");
  }
  const std::int64_t node = job.ranks_per_node();
  const GroupShape group = SharingGroup(mesh);
  const bool is_even = group.stride * group.size % node == 0 &&
                       (node % group.stride == 0 || group.stride % node == 0);
  if (is_even || !GathersWithinHosts(mesh, job)) return absl::OkStatus();
  return RefuseParallel(
      "zero=3:host needs the same number of ranks that share weights on each host, and this mesh "
      "has more on some; take zero=3");
}

}  // namespace geminid::parallel
