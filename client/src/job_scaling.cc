#include "client/src/job_scaling.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "geminid/v1/admin.grpc.pb.h"
#include "geminid/v1/job.grpc.pb.h"
#include "geminid/v1/memory.grpc.pb.h"
#include "proto/rpc/deadline.h"

namespace geminid {
namespace {

constexpr int kFirstBackoffMs = 20;
constexpr int kLongestBackoffMs = 100;
constexpr char kLeft[] = "kept";  // the daemon's word for a session whose process has died

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstBackoffMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestBackoffMs);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
}

absl::Status FromGrpc(const grpc::Status& status, const char* doing) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(doing, ": ", status.error_message()));
}

// Words of other programs may have any bytes, and gRPC rejects texts that are not UTF-8.
std::string OneLine(const std::string& words) {
  return base::Printable(absl::StrReplaceAll(words, {{"\n", "; "}}));
}

// A daemon that ends in good order cancels its calls with CANCELLED.
bool WasCutOff(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::CANCELLED ||
         status.error_code() == grpc::StatusCode::UNAVAILABLE;
}

void SetShare(const JobScaling::Share& share, v1::OfferedShare* message) {
  for (const JobScaling::Row& row : share.rows) {
    v1::RanksRow* const line = message->add_rows();
    line->set_ranks(static_cast<uint32_t>(row.ranks));
    line->set_device_bytes(row.device_bytes);
    line->set_goodput(row.goodput);
  }
  message->set_why_not(share.why_not);
  message->set_remaining(share.remaining);
}

}  // namespace

struct JobScaling::Stubs {
  explicit Stubs(const std::shared_ptr<grpc::Channel>& to_daemon)
      : channel(to_daemon),
        jobs(v1::JobService::NewStub(channel)),
        memory(v1::MemoryService::NewStub(channel)),
        admin(v1::AdminService::NewStub(channel)) {}

  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::JobService::Stub> jobs;
  std::unique_ptr<v1::MemoryService::Stub> memory;
  std::unique_ptr<v1::AdminService::Stub> admin;
};

JobScaling::JobScaling(const std::string& socket, absl::Duration timeout)
    : socket_(socket), timeout_(timeout), stubs_(std::make_unique<Stubs>(MakeChannel(socket))) {}

JobScaling::~JobScaling() = default;

absl::StatusOr<JobScaling::RankChange> JobScaling::Make(const Offer& offer) {
  v1::OfferScaleRequest request;
  request.set_session(offer.session);
  request.set_job(offer.job);
  request.set_run(offer.run);
  request.set_can_move(true);
  request.set_ranks(static_cast<uint32_t>(offer.ranks));
  request.set_why_not(OneLine(offer.why_not));
  request.set_number(offer.outcome.number);
  request.set_state(offer.outcome.state);
  request.set_message(OneLine(offer.outcome.message));
  request.set_has_shrunk(offer.outcome.has_shrunk);
  if (offer.share) SetShare(*offer.share, request.mutable_share());
  v1::OfferScaleResponse response;
  grpc::ClientContext context;
  context.set_deadline(rpc::DeadlineIn(timeout_));
  const grpc::Status status = stubs_->jobs->OfferScale(&context, request, &response);
  if (!status.ok()) return FromGrpc(status, "asking for another number of ranks");
  return RankChange{response.number(), static_cast<int>(response.ranks()), response.host()};
}

absl::Status JobScaling::Tell(const std::string& job, const Outcome& outcome) {
  v1::OfferScaleRequest request;
  request.set_job(job);
  request.set_ranks(1);
  request.set_number(outcome.number);
  request.set_state(outcome.state);
  request.set_message(OneLine(outcome.message));
  v1::OfferScaleResponse response;
  grpc::ClientContext context;
  context.set_deadline(rpc::DeadlineIn(timeout_));
  return FromGrpc(stubs_->jobs->OfferScale(&context, request, &response),
                  "reporting the outcome of a request");
}

absl::StatusOr<JobScaling::Room> JobScaling::GetMemory() {
  v1::Ledger ledger;
  grpc::ClientContext context;
  context.set_deadline(rpc::DeadlineIn(timeout_));
  const grpc::Status status = stubs_->memory->GetLedger(&context, v1::GetLedgerRequest(), &ledger);
  if (!status.ok()) return FromGrpc(status, "asking for the daemon's memory");
  Room room;
  for (const v1::TierLedger& tier : ledger.tiers()) {
    if (tier.tier() == v1::TIER_HOST) room.free_host_bytes += tier.free_bytes();
    if (tier.tier() != v1::TIER_DEVICE) continue;
    room.devices.push_back({tier.device(), tier.free_bytes(), tier.capacity_bytes()});
  }
  return room;
}

absl::StatusOr<std::vector<JobScaling::Device>> JobScaling::GetDevices() {
  GEMINID_ASSIGN_OR_RETURN(Room room, GetMemory());
  return std::move(room.devices);
}

absl::StatusOr<JobScaling::Room> JobScaling::GetRoom() {
  GEMINID_ASSIGN_OR_RETURN(Room room, GetMemory());
  v1::ListJobsResponse jobs;
  grpc::ClientContext context;
  context.set_deadline(rpc::DeadlineIn(timeout_));
  const grpc::Status status = stubs_->jobs->ListJobs(&context, v1::ListJobsRequest(), &jobs);
  if (!status.ok()) return FromGrpc(status, "asking whether the daemon takes jobs");
  room.drained = jobs.drained();
  return room;
}

absl::StatusOr<std::vector<JobScaling::Rank>> JobScaling::GetRanks(const std::string& job,
                                                                   const std::string& run) {
  v1::ListSessionsRequest request;
  request.set_job(job);
  request.set_run(run);
  std::vector<Rank> ranks;
  do {
    v1::ListSessionsResponse response;
    grpc::ClientContext context;
    context.set_wait_for_ready(true);  // a restarting daemon will have the sessions
    context.set_deadline(rpc::DeadlineIn(timeout_));
    const grpc::Status status = stubs_->admin->ListSessions(&context, request, &response);
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return absl::DeadlineExceededError(absl::StrCat(
          "no daemon at ", socket_, " said within ", absl::FormatDuration(timeout_),
          " which ranks of the run it has; see whether it runs, or give another socket"));
    }
    if (!status.ok()) return FromGrpc(status, "asking which ranks of the run the daemon has");
    for (const v1::SessionInfo& session : response.sessions()) {
      ranks.push_back({.rank = session.rank(),
                       .world_size = session.world_size(),
                       .step = session.step(),
                       .device = session.device(),
                       .device_bytes = session.device_bytes(),
                       .host_bytes = session.host_bytes(),
                       .pid = session.pid(),
                       .is_left = session.state() == kLeft});
    }
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return ranks;
}

absl::Status JobScaling::EndRun(const std::string& job, const std::string& run) {
  v1::EndJobRequest request;
  request.set_job(job);
  request.set_run(run);
  request.set_now(true);
  v1::EndJobResponse response;
  const absl::Time give_up = base::MonotonicNow() + timeout_;
  for (;;) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(rpc::DeadlineIn(give_up - base::MonotonicNow()));
    const grpc::Status status = stubs_->jobs->EndJob(&context, request, &response);
    if (status.error_code() == grpc::StatusCode::NOT_FOUND) return absl::OkStatus();
    if (!WasCutOff(status) || base::MonotonicNow() >= give_up) {
      return FromGrpc(status, "freeing the memory of the ranks before");
    }
    absl::SleepFor(absl::Milliseconds(kLongestBackoffMs));
  }
}

absl::StatusOr<bool> JobScaling::WasEnded(const std::string& job, const std::string& run) {
  v1::WasEndedRequest request;
  request.set_job(job);
  request.set_run(run);
  v1::WasEndedResponse response;
  grpc::ClientContext context;
  context.set_deadline(rpc::DeadlineIn(timeout_));
  const grpc::Status status = stubs_->jobs->WasEnded(&context, request, &response);
  if (!status.ok()) return FromGrpc(status, "asking whether the run was ended");
  return response.ended();
}

}  // namespace geminid
