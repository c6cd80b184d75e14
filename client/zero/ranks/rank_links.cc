#include "client/zero/ranks/rank_links.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/device/device.h"
#include "client/src/session_internal.h"
#include "client/zero/basics/patience.h"
#include "client/zero/options/agreed_fields.h"
#include "geminid/optimizer.h"

namespace geminid::zero {
namespace {

// Cuts a group's name to what ChunkSpec::name allows. Its end says the most.
std::string ShortName(const std::string& group) {
  constexpr size_t kMost = 128;
  const std::string name = absl::StrCat("shared by ranks: ", group);
  return name.size() <= kMost ? name : name.substr(name.size() - kMost);
}

// A communicator of the same ranks for the engine alone. Its calls wait with the engine's timeout,
// since other ranks may plan, compile or log meanwhile.
absl::StatusOr<std::unique_ptr<collectives::Communicator>> Duplicate(
    collectives::Communicator* ranks, const char* name, absl::Duration timeout) {
  const Patience patience(ranks, timeout);
  GEMINID_ASSIGN_OR_RETURN(auto duplicate, ranks->Duplicate(name));
  duplicate->SetTimeout(timeout);
  return duplicate;
}

}  // namespace

RankLinks::RankLinks(Session* session, collectives::Communicator* ranks, const Options& options,
                     std::unique_ptr<collectives::Communicator> control,
                     std::function<std::string(uint32_t chunk)> names)
    : session_(session),
      ranks_(ranks),
      options_(options),
      control_(std::move(control)),
      agreement_(control_.get(), std::move(names)) {}

// Remaining charges stay until the session ends.
RankLinks::~RankLinks() { gives_segments_back_->store(false); }

absl::StatusOr<std::unique_ptr<RankLinks>> RankLinks::Connect(
    Session* session, collectives::Communicator* ranks, const std::vector<Parameter>& parameters,
    const Options& options, const Layout& layout,
    std::function<std::string(uint32_t chunk)> names) {
  GEMINID_ASSIGN_OR_RETURN(auto mover, Duplicate(ranks, "geminid-mover", options.timeout));
  GEMINID_ASSIGN_OR_RETURN(auto control, Duplicate(ranks, "geminid-control", options.timeout));
  std::unique_ptr<RankLinks> links(
      new RankLinks(session, ranks, options, std::move(control), std::move(names)));
  links->mover_ = std::move(mover);
  if (options.all_ranks != nullptr) {
    GEMINID_ASSIGN_OR_RETURN(links->all_,
                             Duplicate(options.all_ranks, "geminid-all", options.timeout));
  }
  if (absl::Status status = links->CheckAndConnect(parameters, layout); !status.ok()) {
    links->Abort(std::string(status.message()));
    return status;
  }
  return links;
}

absl::Status RankLinks::CheckAndConnect(const std::vector<Parameter>& parameters,
                                        const Layout& layout) {
  GEMINID_RETURN_IF_ERROR(
      agreement_.CheckSameFields("Engine::Create", FieldsOf(parameters, options_)));
  if (options_.host_ranks != nullptr) {
    const Patience patience(options_.host_ranks, options_.timeout);
    GEMINID_ASSIGN_OR_RETURN(host_shards_, HostShards::Connect(*control_, *options_.host_ranks));
  }
  return ConnectDevices(layout);
}

bool RankLinks::NeedsSumsOfAll() const {
  return all_ != nullptr && !options_.model.empty() && NeedsSums(options_.optimizer);
}

// Connects devices whose memory no host can touch directly, if that is possible.
absl::Status RankLinks::ConnectDevices(const Layout& layout) {
  if (world_size() == 1) return absl::OkStatus();
  exchange_by_ = ranks_->BackendName();
  device::Device* const device = DeviceOf(*session_);
  std::vector<int32_t> untouchable = {device->HostAddress(session_->arena()) == nullptr ? 1 : 0};
  GEMINID_RETURN_IF_ERROR(mover_->AllReduce(untouchable, untouchable, collectives::ReduceOp::kMin));
  if (untouchable[0] == 0) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(auto control, Duplicate(ranks_, "geminid-devices", options_.timeout));
  uint64_t largest = 0;
  for (const ChunkShape& chunk : layout.chunks) largest = std::max(largest, chunk.bytes());
  auto connected = device->ConnectRanks(std::move(control), largest);
  if (connected.ok()) {
    devices_ = *std::move(connected);
    exchange_by_ = devices_->BackendName();
    if (host_shards_ != nullptr) return host_shards_->ConnectDevices(device, largest);
  } else {
    absl::StrAppend(&exchange_by_, " and host memory: ", std::string(connected.status().message()));
  }
  return absl::OkStatus();
}

absl::Status RankLinks::ChargeSegments() {
  const auto charge = [session = session_, gives_back = gives_segments_back_](
                          const std::string& name,
                          uint64_t bytes) -> absl::StatusOr<std::shared_ptr<void>> {
    GEMINID_ASSIGN_OR_RETURN(const std::vector<ChunkHandle> charged,
                             session->Allocate({{ShortName(name), ChunkKind::kShared, bytes}}));
    return std::shared_ptr<void>(nullptr, [session, gives_back, id = charged.front().id](void*) {
      if (gives_back->load()) session->Free(std::vector<ChunkId>{id}).IgnoreError();
    });
  };
  GEMINID_ASSIGN_OR_RETURN(segment_charge_, ranks_->ChargeSegments(charge));
  if (options_.host_ranks == nullptr) return absl::OkStatus();
  // No charge if host_ranks shares the segments of ranks_, which are charged already.
  GEMINID_ASSIGN_OR_RETURN(host_segment_charge_, options_.host_ranks->ChargeSegments(charge));
  return absl::OkStatus();
}

// Leaves out segments that another charger is told of already: they are charged there.
absl::StatusOr<uint64_t> RankLinks::SegmentBytes() const {
  uint64_t all = 0;
  const auto add = [&all](const std::string&,
                          uint64_t bytes) -> absl::StatusOr<std::shared_ptr<void>> {
    all += bytes;
    return nullptr;
  };
  for (collectives::Communicator* const ranks : {ranks_, options_.host_ranks}) {
    if (ranks == nullptr) continue;
    GEMINID_RETURN_IF_ERROR(ranks->ChargeSegments(add).status());
  }
  return all;
}

void RankLinks::GiveSegmentsBack() {
  segment_charge_.reset();
  host_segment_charge_.reset();
}

// Of several ranks with the same elements exactly one must count them, or norms of tensors would be
// wrong.
absl::Status RankLinks::CheckCounted(std::vector<int64_t> counted) const {
  if (!NeedsSumsOfAll()) return absl::OkStatus();
  GEMINID_RETURN_IF_ERROR(all_->AllReduce(counted, counted, collectives::ReduceOp::kSum));
  for (size_t t = 0; t < counted.size(); ++t) {
    const Parameter& tensor = options_.model[t];
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) elements *= size;
    if (!tensor.trainable || counted[t] == elements) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "of the ", elements, " elements of '", tensor.name, "' all ranks together count ",
        counted[t],
        "; say with Parameter::pieces and Parameter::counts which elements each rank counts"));
  }
  return absl::OkStatus();
}

absl::Status RankLinks::Meet(std::string_view words) const {
  mover_->SetLabel(words);
  return mover_->Barrier();
}

void RankLinks::Abort(const std::string& reason) const {
  const std::string words = absl::StrCat("rank ", rank(), ": ", reason);
  mover_->Abort(words);
  if (devices_ != nullptr) devices_->Abort(words);
  if (host_shards_ != nullptr) host_shards_->Abort(words);
  control_->Abort(words);
  if (all_ != nullptr) all_->Abort(words);
}

void RankLinks::AddTo(Statistics* statistics) const {
  statistics->ranks_exchange_by = exchange_by_;
  if (devices_ != nullptr) statistics->registered_bytes = devices_->Stats().registered_bytes;
  if (host_shards_ != nullptr) {
    statistics->received_within_host_bytes = host_shards_->received_bytes();
    statistics->host_shard_bytes = host_shards_->bytes();
  }
  uint64_t bytes = statistics->received_within_host_bytes;
  for (const collectives::Communicator* ranks : {mover_.get(), devices_.get()}) {
    if (ranks == nullptr) continue;
    for (const collectives::PeerTraffic& peer : ranks->Stats().peers) bytes += peer.bytes_received;
  }
  statistics->received_bytes = bytes;
}

}  // namespace geminid::zero
