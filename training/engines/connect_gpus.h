// Connects memory of the ranks' GPUs for the exchanges of layers and of sequences.
#ifndef GEMINID_TRAINING_ENGINES_CONNECT_GPUS_H_
#define GEMINID_TRAINING_ENGINES_CONNECT_GPUS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/device/device.h"
#include "geminid/communicator.h"

namespace geminid::trainer {

// A collective of `ranks`, whose GPUs are their `device`. Null: nothing moves memory between these
// GPUs, so exchanges pass through host memory. Writes to `by` what carries the exchanges, and why
// if that is host memory. One name serves several calls: host memory replaces what they wrote.
absl::StatusOr<std::unique_ptr<collectives::Communicator>> ConnectGpus(
    device::Device* device, collectives::Communicator& ranks, std::string* by);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_CONNECT_GPUS_H_
