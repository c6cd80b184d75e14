// The bytes that ranks with the same weights gather and reduce (ZeRO), and the time that it takes.
// Pure.
#ifndef GEMINID_TRAINING_MESHES_SHARING_H_
#define GEMINID_TRAINING_MESHES_SHARING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "training/forecast/forecast.h"
#include "training/forecast/problem.h"
#include "training/meshes/mesh_spec.h"

namespace geminid::parallel {

// The sizes are those of whole chunks; a ring of P ranks receives (P - 1) / P of each.
struct SharedChunks {
  double bytes = 0;
  double collectives = 0;
};

// The averages over the micro-batches of a step.
struct Sharing {
  SharedChunks over_all;     // among all ranks that share weights
  SharedChunks within_host;  // among those of a host alone (MeshSpec::within_host)
};
// With MeshSpec::within_host, a step of `micro_batches` gathers each chunk over all ranks once.
Sharing SharingOf(const MeshSpec& mesh, const forecast::Job& job,
                  const forecast::GatherTraffic& pass, std::uint64_t micro_batches);

double SharingSeconds(const MeshSpec& mesh, const forecast::Job& job, const Sharing& sharing);
// The bytes that a rank receives.
double SharedBytes(const MeshSpec& mesh, const forecast::Job& job, const Sharing& sharing);

// The number of ranks on one host that share weights.
std::int64_t SharingRanksOfHost(const MeshSpec& mesh, const forecast::Job& job);
// Whether weights are gathered within hosts: the mesh asks for it, and the ranks that share weights
// are on several hosts.
bool GathersWithinHosts(const MeshSpec& mesh, const forecast::Job& job);
// INVALID_ARGUMENT if the mesh asks for that on one host, or if hosts have different numbers of
// these ranks.
absl::Status CheckWithinHosts(const MeshSpec& mesh, const forecast::Job& job);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_SHARING_H_
