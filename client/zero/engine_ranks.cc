// The engine's own communicators, and what moves memory of devices between the ranks.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/device/device.h"
#include "client/src/session_internal.h"
#include "client/zero/engine_impl.h"
#include "client/zero/patience.h"

namespace geminid::zero {
namespace {

// The end of a group's name says what it is of; see ChunkSpec::name.
std::string ShortName(const std::string& group) {
  constexpr size_t kMost = 128;
  const std::string name = absl::StrCat("shared by ranks: ", group);
  return name.size() <= kMost ? name : name.substr(name.size() - kMost);
}

}  // namespace

// Of the same ranks, for the engine alone. While one rank plans, compiles or logs, the others wait
// for it in any of these.
absl::StatusOr<std::unique_ptr<collectives::Communicator>> EngineImpl::Duplicate(
    collectives::Communicator* ranks, const char* name) const {
  const Patience patience(ranks, options_.timeout);
  GEMINID_ASSIGN_OR_RETURN(auto duplicate, ranks->Duplicate(name));
  duplicate->SetTimeout(options_.timeout);
  return duplicate;
}

// What the ranks share on this host is charged to the session of who has made it.
absl::Status EngineImpl::ChargeSegments() {
  const auto charge = [session = session_, gives_back = gives_segments_back_](
                          const std::string& name,
                          uint64_t bytes) -> absl::StatusOr<std::shared_ptr<void>> {
    GEMINID_ASSIGN_OR_RETURN(const std::vector<ChunkHandle> charged,
                             session->Allocate({{ShortName(name), ChunkKind::kShared, bytes}}));
    return std::shared_ptr<void>(nullptr, [session, gives_back, id = charged.front().id](void*) {
      if (gives_back->load()) session->Free(std::vector<ChunkId>{id}).IgnoreError();
    });
  };
  GEMINID_ASSIGN_OR_RETURN(segment_charge_, communicator_->ChargeSegments(charge));
  if (options_.host_ranks == nullptr) return absl::OkStatus();
  // Unless they come from the same ones, of which it is told already.
  GEMINID_ASSIGN_OR_RETURN(host_segment_charge_, options_.host_ranks->ChargeSegments(charge));
  return absl::OkStatus();
}

absl::Status EngineImpl::MakeCommunicators() {
  GEMINID_ASSIGN_OR_RETURN(mover_communicator_, Duplicate(communicator_, "geminid-mover"));
  GEMINID_ASSIGN_OR_RETURN(control_communicator_, Duplicate(communicator_, "geminid-control"));
  if (!options_.model.empty() && !IsElementwise(options_.optimizer)) {
    GEMINID_ASSIGN_OR_RETURN(sums_communicator_, Duplicate(options_.all_ranks, "geminid-sums"));
  }
  agreement_ = std::make_unique<RankAgreement>(
      control_communicator_.get(), [this](uint32_t chunk) { return NameOfGathered(chunk); });
  GEMINID_RETURN_IF_ERROR(
      agreement_->CheckSameFields("Engine::Create", FieldsOf(parameters_, options_)));
  if (options_.host_ranks != nullptr) {
    const Patience patience(options_.host_ranks, options_.timeout);
    GEMINID_ASSIGN_OR_RETURN(host_shards_,
                             HostShards::Connect(*control_communicator_, *options_.host_ranks));
  }
  return ConnectDevices();
}

// Of ranks with the same elements one counts them, or norms of tensors would be wrong. Over the
// ranks that an error of Create aborts: another may have refused what it was given, or still be
// making memory, for which it is waited as long as for anything in the engine.
absl::Status EngineImpl::CheckCounted() {
  if (sums_communicator_ == nullptr) return absl::OkStatus();
  std::vector<int64_t> counted = optimizer_->CountedElements();
  collectives::Communicator* const all = options_.all_ranks;
  {
    const Patience patience(all, options_.timeout);
    GEMINID_RETURN_IF_ERROR(all->AllReduce(counted, counted, collectives::ReduceOp::kSum));
  }
  for (size_t t = 0; t < counted.size(); ++t) {
    const Parameter& tensor = options_.model[t];
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) elements *= size;
    if (!tensor.trainable || counted[t] == elements) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "of the ", elements, " elements of '", tensor.name, "' all ranks together count ",
        counted[t], "; say with Parameter::pieces and Parameter::counts which rank counts which"));
  }
  return absl::OkStatus();
}

// Memory of devices that no host can touch goes between them directly, where that can be.
absl::Status EngineImpl::ConnectDevices() {
  if (communicator_->WorldSize() == 1) return absl::OkStatus();
  exchange_by_ = communicator_->BackendName();
  device::Device* const device = DeviceOf(*session_);
  std::vector<int32_t> untouchable = {device->HostAddress(session_->arena()) == nullptr ? 1 : 0};
  GEMINID_RETURN_IF_ERROR(
      mover_communicator_->AllReduce(untouchable, untouchable, collectives::ReduceOp::kMin));
  if (untouchable[0] == 0) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(auto control, Duplicate(communicator_, "geminid-devices"));
  uint64_t largest = 0;
  for (const ChunkShape& chunk : layout_.chunks) largest = std::max(largest, chunk.bytes());
  auto connected = device->ConnectRanks(std::move(control), largest);
  if (connected.ok()) {
    device_communicator_ = *std::move(connected);
    exchange_by_ = device_communicator_->BackendName();
    if (host_shards_ != nullptr) return host_shards_->ConnectDevices(device, largest);
  } else {
    absl::StrAppend(&exchange_by_, " and host memory: ", std::string(connected.status().message()));
  }
  return absl::OkStatus();
}

}  // namespace geminid::zero
