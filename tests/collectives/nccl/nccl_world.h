// Ranks that each have a simulated GPU, and a communicator over them.
#ifndef GEMINID_TESTS_COLLECTIVES_NCCL_NCCL_WORLD_H_
#define GEMINID_TESTS_COLLECTIVES_NCCL_NCCL_WORLD_H_

#include <memory>

#include "absl/status/statusor.h"
#include "collectives/nccl/nccl_communicator.h"
#include "geminid/communicator.h"
#include "tests/gpu/double/node.h"

namespace geminid::collectives {

// A node of simulated GPUs for this process and its children, with all functions of the double.
gpu_double::NodeOptions NodeWithNccl(int devices);

// Device `index` of this process's driver, which is loaded.
NcclPlace PlaceOf(int index);

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_COLLECTIVES_NCCL_NCCL_WORLD_H_
