#include "client/src/control.h"

#include <grpcpp/grpcpp.h>
#include <poll.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "client/src/daemon_ended.h"
#include "client/src/plan_messages.h"
#include "geminid/v1/chunk.grpc.pb.h"
#include "geminid/v1/memory.grpc.pb.h"
#include "geminid/v1/plan.grpc.pb.h"
#include "geminid/v1/session.grpc.pb.h"
#include "proto/rpc/deadline.h"
#include "proto/shm/limits.h"

namespace geminid {
namespace {

// The daemon touches new memory before it hands it out, which takes 0.2 to 0.5 s/GiB, or more if
// the machine is short of pages. Calls that allocate get so much longer.
constexpr absl::Duration kPerGiB = absl::Seconds(4);
// The planner's own limits are within a minute.
constexpr absl::Duration kPlanning = absl::Minutes(2);

constexpr char kNoAnswer[] = "Deadline Exceeded";

absl::Status FromGrpc(const grpc::Status& status, const char* doing, const std::string& socket,
                      absl::Duration timeout) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  if (code == absl::StatusCode::kUnavailable) {
    return absl::UnavailableError(
        absl::StrCat(doing, ": the daemon at ", socket, ": ", status.error_message()));
  }
  // Replaces gRPC's own message; the daemon's messages say more.
  if (code == absl::StatusCode::kDeadlineExceeded && status.error_message() == kNoAnswer) {
    return absl::DeadlineExceededError(
        absl::StrCat(doing, ": the daemon at ", socket, " did not answer within ",
                     absl::FormatDuration(absl::Ceil(timeout, absl::Milliseconds(1))),
                     "; it or the machine may be busy: see 'geminictl status', or connect with a "
                     "longer timeout"));
  }
  return absl::Status(code, absl::StrCat(doing, ": ", status.error_message()));
}

// How often to check whether a daemon or the descriptor store still has the session.
constexpr absl::Duration kSuccessorPoll = absl::Milliseconds(100);
// A daemon that has cut a call off is about to close its connections.
constexpr int kCutOffPauseMs = 20;

// Between attempts to connect; gRPC's default begins with a second.
constexpr int kFirstBackoffMs = 20;
constexpr int kLongestBackoffMs = 100;  // others may be crowding the socket
// How long a session that ends waits for a daemon, and for the next one.
constexpr absl::Duration kFarewell = absl::Seconds(10);

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstBackoffMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestBackoffMs);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(-1);  // plans grow with the model; the daemon limits its own
  // A socket path is not a host name, and the environment must not choose the channel.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
}

// Whether the call ended because its daemon did. A daemon that ends in good order cancels its calls
// with CANCELLED; this side cancels none. An UNAVAILABLE that the daemon marks is its own answer
// (IsMeant).
bool WasCutOff(const grpc::Status& status, grpc::Channel& channel) {
  if (status.error_code() == grpc::StatusCode::CANCELLED) return true;
  return status.error_code() == grpc::StatusCode::UNAVAILABLE &&
         channel.GetState(false) != GRPC_CHANNEL_READY;
}

std::string HexToken(const shm::Welcome& welcome) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(welcome.token), sizeof welcome.token));
}

}  // namespace

struct Control::Stubs {
  explicit Stubs(const std::shared_ptr<grpc::Channel>& to_daemon)
      : channel(to_daemon),
        session(v1::SessionService::NewStub(channel)),
        chunk(v1::ChunkService::NewStub(channel)),
        plan(v1::PlanService::NewStub(channel)),
        memory(v1::MemoryService::NewStub(channel)) {}

  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::SessionService::Stub> session;
  std::unique_ptr<v1::ChunkService::Stub> chunk;
  std::unique_ptr<v1::PlanService::Stub> plan;
  std::unique_ptr<v1::MemoryService::Stub> memory;
};

namespace {

// The context of one call: the session's token and the deadline.
class Call {
 public:
  Call(const std::string& token, absl::Duration timeout) {
    context_.AddMetadata(shm::kTokenMetadataKey, token);
    context_.set_deadline(rpc::DeadlineIn(timeout));
  }
  grpc::ClientContext* context() { return &context_; }
  // After the call: whether the daemon itself answered UNAVAILABLE.
  bool IsMeant() const {
    return context_.GetServerTrailingMetadata().count(shm::kMeantMetadataKey) > 0;
  }

 private:
  grpc::ClientContext context_;
};

}  // namespace

Control::Control(const std::string& socket, const shm::Welcome& welcome, absl::Duration timeout,
                 int local_ranks, int attach_socket)
    : socket_(socket),
      timeout_(timeout),
      local_ranks_(local_ranks),
      token_(HexToken(welcome)),
      attach_socket_(attach_socket),
      on_gpu_(welcome.device.kind == shm::DeviceKind::kCuda),
      first_allocation_(uint64_t{welcome.successor} << shm::kAllocationBits),
      allocations_(first_allocation_),
      stubs_(std::make_unique<Stubs>(MakeChannel(socket))) {}

Control::~Control() = default;

bool Control::IsHungUp(int within_ms) const {
  pollfd attach = {attach_socket_, POLLRDHUP, 0};
  return poll(&attach, 1, within_ms) > 0;
}

// True once connected again; false if the session is lost, or `give_up` has passed.
bool Control::WaitForSuccessor(absl::Time give_up) const {
  for (;;) {
    const absl::Duration left = give_up - base::MonotonicNow();
    if (left <= absl::ZeroDuration() || IsHungUp()) return false;
    const absl::Duration pause = std::min(left, kSuccessorPoll);
    if (stubs_->channel->WaitForConnected(rpc::DeadlineIn(pause))) return true;
  }
}

// `make(context, again)` makes the call; `again`: an earlier daemon may have executed it.
template <typename Make>
absl::Status Control::MakeCall(const char* doing, absl::Duration timeout, Make make,
                               absl::Duration patience) {
  absl::Time lost = absl::InfiniteFuture();
  bool doubted = false;
  for (bool again = false;; again = true) {
    Call call(token_, timeout);
    const grpc::Status status = make(call.context(), again);
    if (status.ok()) known_.store(true);
    if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED) unknown_.store(true);
    if (again && status.error_code() == grpc::StatusCode::UNAUTHENTICATED) {
      return absl::UnavailableError(absl::StrCat(doing, ": the daemon at ", socket_,
                                                 " replaced one that ended, and did not find this "
                                                 "session (its log says why); attach again"));
    }
    if (!WasCutOff(status, *stubs_->channel)) {
      // If this thread was not scheduled for a while, the channel may already be connected to the
      // next daemon when its state is read.
      const bool doubts =
          status.error_code() == grpc::StatusCode::UNAVAILABLE && !call.IsMeant() && !doubted;
      if (!doubts) return FromGrpc(status, doing, socket_, timeout);
      doubted = true;
      continue;
    }
    doubted = false;
    lost = std::min(lost, base::MonotonicNow());
    if (stubs_->channel->GetState(false) == GRPC_CHANNEL_READY) (void)IsHungUp(kCutOffPauseMs);
    if (WaitForSuccessor(lost + std::min(timeout_, patience))) continue;
    if (IsHungUp()) unknown_.store(true);
    return absl::UnavailableError(absl::StrCat(
        doing, ": the daemon at ", socket_, " does not answer (", status.error_message(),
        "), and for ",
        absl::FormatDuration(absl::Trunc(base::MonotonicNow() - lost, absl::Milliseconds(1))),
        " no other daemon took its place; ",
        on_gpu_ ? absl::StrCat(WhySessionEnded(true), "; ") : "",
        "mapped memory and leases still work"));
  }
}

absl::Status Control::Connect() {
  if (stubs_->channel->WaitForConnected(rpc::DeadlineIn(timeout_))) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(
      absl::StrCat("the daemon at ", socket_, " took no connection for calls within ",
                   absl::FormatDuration(timeout_), "; see its log, and 'geminictl status'"));
}

// The ranks of a job create theirs at the same time, on the same processors.
absl::Duration Control::TimeToPopulate(uint64_t bytes) const {
  const double gib = static_cast<double>(bytes) / (uint64_t{1} << 30);
  return timeout_ + kPerGiB * (gib * local_ranks_);
}

absl::StatusOr<Control::Arena> Control::CreateArena(uint64_t bytes, bool may_be_there) {
  v1::CreateArenaRequest request;
  request.set_bytes(bytes);
  v1::CreateArenaResponse response;
  absl::Status status = MakeCall("device memory", TimeToPopulate(bytes),
                                 [&](grpc::ClientContext* context, bool again) {
                                   request.set_again(again || may_be_there);
                                   return stubs_->session->CreateArena(context, request, &response);
                                 });
  if (!status.ok()) return status;
  return Arena{response.bytes(), response.slabs()};
}

absl::Status Control::ReleaseArena() {
  v1::ReleaseArenaRequest request;
  v1::ReleaseArenaResponse response;
  return MakeCall("giving device memory back", timeout_,
                  [&](grpc::ClientContext* context, bool again) {
                    request.set_again(again);
                    return stubs_->session->ReleaseArena(context, request, &response);
                  });
}

absl::StatusOr<uint64_t> Control::HostShare() {
  v1::GetHostShareResponse response;
  absl::Status status = MakeCall(
      "asking for the share of host memory", timeout_, [&](grpc::ClientContext* context, bool) {
        return stubs_->session->GetHostShare(context, v1::GetHostShareRequest(), &response);
      });
  if (!status.ok()) return status;
  return response.bytes();
}

absl::StatusOr<Control::AdmissionStatus> Control::Admit(const Admission& admission, uint32_t ranks,
                                                        uint64_t device_bytes) {
  v1::AdmitRequest request;
  request.set_run(admission.run);
  request.set_ranks(ranks);
  request.set_priority(admission.priority);
  request.set_device_bytes(device_bytes);
  request.set_host_bytes(admission.host_memory_bytes);
  request.set_preemptible(admission.preemptible);
  request.set_may_wait(admission.patience > absl::ZeroDuration());
  request.set_weight(admission.weight);
  v1::AdmitResponse response;
  absl::Status status =
      MakeCall("asking for admission", timeout_, [&](grpc::ClientContext* context, bool) {
        return stubs_->session->Admit(context, request, &response);
      });
  if (!status.ok()) return status;
  return AdmissionStatus{response.admitted(), response.state(), response.position(),
                         response.reason()};
}

absl::StatusOr<Control::Allocation> Control::Allocate(const std::vector<ChunkSpec>& specs,
                                                      bool claim) {
  v1::AllocateChunksRequest request;
  uint64_t home_bytes = 0;
  for (const ChunkSpec& spec : specs) {
    v1::ChunkSpec* chunk = request.add_chunks();
    chunk->set_name(spec.name);
    chunk->set_kind(static_cast<v1::ChunkKind>(spec.kind));
    chunk->set_bytes(spec.bytes);
    chunk->set_has_home(spec.has_home);
    if (spec.has_home) home_bytes += std::min(spec.bytes, shm::kMaxChunkBytes);
  }
  request.set_number(++allocations_);
  request.set_claim(claim);
  v1::AllocateChunksResponse response;
  absl::Status status = MakeCall("allocating memory", TimeToPopulate(home_bytes),
                                 [&](grpc::ClientContext* context, bool again) {
                                   request.set_again(again);
                                   return stubs_->chunk->Allocate(context, request, &response);
                                 });
  if (!status.ok()) return status;
  const int count = static_cast<int>(specs.size());
  if (response.chunk_size() != count || response.pool_offset_size() != count) {
    return absl::InternalError(absl::StrCat("allocating memory: the daemon answered for ",
                                            response.chunk_size(), " chunks, not ", count));
  }
  Allocation allocation;
  for (const uint32_t chunk : response.chunk()) allocation.chunks.push_back(ChunkId{chunk});
  allocation.pool_offsets.assign(response.pool_offset().begin(), response.pool_offset().end());
  allocation.pool = shm::PoolId{response.pool()};
  allocation.pool_bytes = response.pool_bytes();
  return allocation;
}

absl::Status Control::Free(std::span<const ChunkId> chunks) {
  v1::FreeChunksRequest request;
  for (const ChunkId chunk : chunks) request.add_chunk(static_cast<uint32_t>(chunk));
  v1::FreeChunksResponse response;
  return MakeCall("freeing memory", timeout_, [&](grpc::ClientContext* context, bool again) {
    request.set_again(again);
    return stubs_->chunk->Free(context, request, &response);
  });
}

absl::Status Control::FreeOlder() {
  v1::FreeChunksRequest request;
  request.set_older_than(first_allocation_);
  v1::FreeChunksResponse response;
  return MakeCall("freeing the memory of the process before", timeout_,
                  [&](grpc::ClientContext* context, bool) {
                    return stubs_->chunk->Free(context, request, &response);
                  });
}

absl::StatusOr<Plan> Control::MakePlan(const Trace& trace, const PlanRequest& request) {
  const v1::MakePlanRequest message = ToMessage(trace, request);
  v1::MakePlanResponse response;
  absl::Status status =
      MakeCall("planning", timeout_ + kPlanning, [&](grpc::ClientContext* context, bool) {
        return stubs_->plan->MakePlan(context, message, &response);
      });
  if (!status.ok()) return status;
  return FromMessage(response.plan(), trace);
}

absl::StatusOr<MemoryUse> Control::GetMemoryUse(uint64_t session) {
  v1::Ledger ledger;
  absl::Status status =
      MakeCall("asking for the memory in use", timeout_, [&](grpc::ClientContext* context, bool) {
        return stubs_->memory->GetLedger(context, v1::GetLedgerRequest(), &ledger);
      });
  if (!status.ok()) return status;
  MemoryUse use;
  for (const v1::LedgerEntry& entry : ledger.entries()) {
    if (entry.session() != session || entry.kind() < 0 || entry.kind() >= kChunkKinds) continue;
    if (entry.tier() == v1::TIER_HOST) {
      use.host_bytes_by_kind[entry.kind()] += entry.bytes();
      use.host_bytes += entry.bytes();
    } else if (entry.tier() == v1::TIER_DEVICE) {
      use.device_bytes_by_kind[entry.kind()] += entry.bytes();
      use.device_bytes += entry.bytes();
    } else if (entry.tier() == v1::TIER_DISK) {
      use.disk_bytes += entry.bytes();
    }
  }
  return use;
}

absl::Status Control::Detach(bool insists) {
  const absl::Duration farewell = std::min(timeout_, kFarewell);
  if (insists) {
    // A repeated call may find that the session is detached already.
    v1::DetachResponse ignored;
    return MakeCall(
        "detaching", farewell,
        [&](grpc::ClientContext* context, bool) {
          return stubs_->session->Detach(context, v1::DetachRequest(), &ignored);
        },
        farewell);
  }
  Call call(token_, farewell);
  v1::DetachResponse response;
  return FromGrpc(stubs_->session->Detach(call.context(), v1::DetachRequest(), &response),
                  "detaching", socket_, timeout_);
}

}  // namespace geminid
