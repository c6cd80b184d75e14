#include "training/engines/connect_gpus.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "training/nn/layer_share.h"

namespace geminid::trainer {

absl::StatusOr<std::unique_ptr<collectives::Communicator>> ConnectGpus(
    device::Device* device, collectives::Communicator& ranks, std::string* by) {
  GEMINID_ASSIGN_OR_RETURN(auto control, ranks.Duplicate("geminid-layers"));
  auto connected = device->ConnectRanks(std::move(control), LayerShare::kDeviceSumBytes);
  if (connected.ok()) {
    if (by->empty()) *by = (*connected)->BackendName();
    return connected;
  }
  // Some ranks of a grid may have a GPU each, and others share one.
  *by = absl::StrCat(ranks.BackendName(),
                     " and host memory: ", std::string(connected.status().message()));
  return std::unique_ptr<collectives::Communicator>();
}

}  // namespace geminid::trainer
