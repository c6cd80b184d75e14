// The suite over NCCL. Its buffers are host memory, which the GPUs of this node can access.
#include <memory>

#include "absl/status/statusor.h"
#include "collectives/local/local_communicator.h"
#include "collectives/shm/shm_communicator.h"
#include "tests/base/long_tests.h"
#include "tests/collectives/nccl/nccl_world.h"
#include "tests/collectives/world.h"

namespace geminid::collectives {
namespace {

constexpr int kGpus = 4;

void MakeNode() {
  static auto* const node = [] {
    auto* const made = new gpu_double::Node(NodeWithNccl(kGpus));
    made->SetPageableMemoryAccess(true);
    return made;
  }();
  (void)node;
}

// `timeout` is that of operations; it does not limit connecting. `registers`: NCCL is told of
// memory, but not of the suite's buffers.
Communicators OverAll(Communicators controls, absl::Duration timeout, bool registers = false) {
  MakeNode();
  Communicators communicators = ConnectInThreads(static_cast<int>(controls.size()), [&](int rank) {
    NcclPlace place = PlaceOf(rank);
    if (registers) place.buffers = std::make_shared<NcclBuffers>();
    return ConnectNccl(place, std::move(controls[static_cast<size_t>(rank)]));
  });
  for (const auto& communicator : communicators) communicator->SetTimeout(timeout);
  return communicators;
}

}  // namespace

std::vector<Backend> BackendsUnderTest() {
  std::vector<Backend> backends = {
      {"nccl_beside_local",
       [](int world_size, absl::Duration timeout) {
         return OverAll(MakeLocalCommunicators(world_size, kDefaultTimeout), timeout);
       }},
      {"nccl_of_registered_memory",
       [](int world_size, absl::Duration timeout) {
         return OverAll(MakeLocalCommunicators(world_size, kDefaultTimeout), timeout,
                        /*registers=*/true);
       }},
      {"nccl_beside_shm", [](int world_size, absl::Duration timeout) {
         const std::string name = UniqueName();
         return OverAll(
             ConnectInThreads(world_size,
                              [&](int rank) { return ConnectShm(name, rank, world_size, {}); }),
             timeout);
       }}};
  // Short tests try each size once with local ranks, and some sizes with the other backends.
  if (!LongTests()) {
    backends[1].world_sizes = {3};
    backends[2].world_sizes = {2, kGpus};
  }
  return backends;
}

}  // namespace geminid::collectives
