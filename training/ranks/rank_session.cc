#include "training/ranks/rank_session.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "client/src/daemon_ended.h"
#include "client/src/job_scaling.h"
#include "geminid/connect.h"
#include "training/logs/wait_words.h"
#include "training/settings/device_check.h"
#include "training/settings/flag_words.h"
#include "training/settings/rank_share.h"

namespace geminid::trainer {

bool LeadsHost(const RankContext& context) {
  return context.spread.has_list() ? context.info.local_rank == 0 : context.info.rank == 0;
}

absl::StatusOr<std::unique_ptr<collectives::Communicator>> ConnectRanks(
    const TrainOptions& options, const RankContext& context) {
  collectives::ConnectOptions connect;
  connect.timeout = options.timeout;
  connect.connect_timeout = options.timeout;
  return collectives::Connect(context.info, connect);
}

absl::StatusOr<bool> AnyRank(collectives::Communicator& communicator, bool mine) {
  std::vector<double> votes = {mine ? 1.0 : 0.0};
  GEMINID_RETURN_IF_ERROR(communicator.AllReduce(votes, votes, collectives::ReduceOp::kSum));
  return votes[0] > 0;
}

namespace {

constexpr size_t kRunNameMax = 63;
constexpr absl::Duration kConnectPause = absl::Milliseconds(50);
constexpr absl::Duration kAnswer = absl::Seconds(1);

// Before the daemon's words the flag that they are about.
absl::Status WithCause(const TrainOptions& options, const absl::Status& status) {
  const bool is_path = absl::StartsWith(status.message(), "the socket path");
  if ((absl::IsUnavailable(status) || is_path) && !options.socket.empty()) {
    return WithFlag(absl::StrCat("--socket ", options.socket), status);
  }
  const bool is_device = absl::StartsWith(status.message(), "there is no device");
  if (is_device && options.device.has_value()) {
    return WithFlag(absl::StrCat("--device ", static_cast<uint32_t>(*options.device)), status);
  }
  return status;
}

// What the state of the model surely takes of host memory on this rank.
uint64_t HostBytes(const TrainOptions& options, int world_size) {
  const bool on_device = options.zero.placement == zero::Placement::kDevice ||
                         options.zero.state_placement == zero::StatePlacement::kDevice;
  if (on_device) return 0;
  // Whatever is trained of it and by which optimizer, it has weights.
  const uint64_t per_parameter = zero::SizeOf(options.zero.data_type);
  return CountParameters(options.model) * per_parameter / static_cast<uint64_t>(world_size);
}

// Whether ranks before left state that only these ranks can save, once they have a session.
bool HasStateToSave(const TrainOptions& options, const RankContext& context) {
  return !options.save.empty() && context.handover != nullptr &&
         context.handover->complete().has_value();
}

// Called again and again while the job waits: says what is new, and ends the wait at a signal.
absl::Status OnWait(const RankContext& context, const std::string& what, bool waits_to_save,
                    WaitWords* words) {
  if (context.on_wait) context.on_wait();
  if (!waits_to_save && context.stop_signal && context.stop_signal() != 0) {
    return absl::CancelledError(absl::StrCat("stopped while the rank waited for memory: ", what));
  }
  if (context.info.rank != 0 || !context.write_stderr) return absl::OkStatus();
  const std::optional<std::string> line = words->Waits(base::MonotonicNow(), what);
  if (line.has_value()) context.write_stderr(*line);
  return absl::OkStatus();
}

// `attached` becomes true when there is a session. It may wait again: for its arena, between steps.
Admission AdmissionOf(const TrainOptions& options, const RankContext& context, bool gives_way,
                      std::shared_ptr<const bool> attached) {
  return {.run = context.info.job.substr(0, kRunNameMax),
          .priority = options.priority,
          .host_memory_bytes = HostBytes(options, context.info.world_size),
          .patience = options.queue_timeout,
          .preemptible = gives_way,
          .on_wait = [&context, attached = std::move(attached), words = WaitWords(),
                      to_save = HasStateToSave(options, context)](const std::string& what) mutable {
            return OnWait(context, what, to_save && !*attached, &words);
          }};
}

// A person may have ended the run after a rank had died: the others then end without hearing of it,
// and their launcher starts all of them again. If the daemon does not answer, they go on.
absl::Status CheckNotEnded(const RankContext& context, const std::string& job,
                           const std::string& run) {
  if (context.restarts.is_first()) return absl::OkStatus();
  const bool ended = JobScaling(context.socket, kAnswer).WasEnded(job, run).value_or(false);
  return ended ? JobEnded() : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> ConnectDaemon(const TrainOptions& options,
                                                       const RankContext& context,
                                                       uint64_t unlimited_bytes,
                                                       YieldOptions between) {
  ConnectOptions connect;
  connect.socket = context.socket;
  connect.job = options.job;
  connect.rank = context.info.rank;
  connect.world_size = context.info.world_size;
  connect.local_rank = context.info.local_rank;
  connect.local_world_size = context.info.local_world_size;
  connect.device = options.device;
  connect.client_name = "geminid-train";
  connect.device_memory_bytes = options.device_memory_bytes.value_or(unlimited_bytes);
  // A daemon that is starved of processors is waited for as long as a rank is.
  connect.timeout = std::max(connect.timeout, options.timeout);
  connect.copy_bytes_per_second = static_cast<double>(options.copy_bytes_per_second);
  if (between.is_kept && context.restarts.comes_back()) {
    connect.run = RunName(context.info);
    GEMINID_RETURN_IF_ERROR(CheckNotEnded(context, connect.job, connect.run));
    connect.keep_on_death = context.restarts.keeps();
  }
  const auto attached = std::make_shared<bool>(false);
  connect.admission = AdmissionOf(options, context, between.gives_way, attached);
  absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(connect);
  // The daemon may have died with the rank, and somebody starts it again.
  const absl::Time give_up = base::MonotonicNow() + options.timeout;
  while (absl::IsUnavailable(session.status()) && !context.restarts.is_first() &&
         base::MonotonicNow() < give_up) {
    absl::SleepFor(kConnectPause);
    session = Session::Connect(connect);
  }
  if (absl::IsResourceExhausted(session.status()) && !options.device_memory_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "without --device-memory nothing leaves the device, for which each rank takes ",
        base::FormatBytes(connect.device_memory_bytes),
        "; give --device-memory a size: ", std::string(session.status().message())));
  }
  if (!session.ok()) return WithCause(options, session.status());
  *attached = true;
  GEMINID_RETURN_IF_ERROR(CheckDevice((*session)->device_description(), options.wants_gpu));
  return session;
}

absl::StatusOr<std::unique_ptr<Session>> ConnectToTrain(const TrainOptions& options,
                                                        const RankContext& context, size_t threads,
                                                        int stage) {
  const auto connect = [&](const TrainOptions& of) {
    return ConnectDaemon(of, context,
                         UnlimitedDeviceBytes(of, context.info.world_size, threads, stage),
                         {.gives_way = !of.parallel.cuts_model(), .is_kept = true});
  };
  absl::StatusOr<std::unique_ptr<Session>> session = connect(options);
  if (absl::IsResourceExhausted(session.status()) && !options.device_memory_bytes &&
      options.activations == Activations::kAuto) {
    TrainOptions smaller = options;
    smaller.activations = Activations::kRecompute;
    session = connect(smaller);
  }
  return session;
}

}  // namespace geminid::trainer
