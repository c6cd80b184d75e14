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

// Whole chunks; a ring of P ranks receives (P - 1) / P of each.
struct SharedChunks {
  double bytes = 0;
  double collectives = 0;
};

// In a micro-batch, on average over those of a step.
struct Sharing {
  SharedChunks over_all;     // ranks that share
  SharedChunks within_host;  // the ranks of a host alone (MeshSpec::within_host)
};
// Within hosts a step of `micro_batches` gathers each chunk over all ranks once.
Sharing SharingOf(const MeshSpec& mesh, const forecast::Job& job, const forecast::Gathered& pass,
                  std::uint64_t micro_batches);

double SharingSeconds(const MeshSpec& mesh, const forecast::Job& job, const Sharing& sharing);
// Received by a rank.
double SharedBytes(const MeshSpec& mesh, const forecast::Job& job, const Sharing& sharing);

// Of those that share weights, the ranks on one host.
std::int64_t SharingRanksOfHost(const MeshSpec& mesh, const forecast::Job& job);
// Whether weights are gathered within hosts: where that is asked for, and those that share them are
// on several.
bool GathersWithinHosts(const MeshSpec& mesh, const forecast::Job& job);
// INVALID_ARGUMENT where that is asked for and cannot be: on one host, and on hosts of which some
// have more of them than others.
absl::Status CheckWithinHosts(const MeshSpec& mesh, const forecast::Job& job);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_SHARING_H_
