#include "training/scaling/arrival.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/bytes.h"
#include "base/counted.h"
#include "base/status_macros.h"
#include "client/src/job_scaling.h"
#include "training/data/data_sum.h"
#include "training/scaling/room.h"

namespace geminid::trainer {
namespace {

constexpr absl::Duration kAnswer = absl::Seconds(10);

}  // namespace

absl::Status CheckRoomFor(const TrainOptions& options, const MoveRequest& move,
                          const std::string& socket) {
  const auto of_daemon = [&](const absl::Status& status) {
    return absl::Status(
        status.code(), absl::StrCat("the daemon at ", socket, ": ", std::string(status.message())));
  };
  JobScaling daemon(socket, kAnswer);
  const absl::StatusOr<JobScaling::Room> room = daemon.GetRoom();
  if (!room.ok()) return of_daemon(room.status());
  if (room->drained) {
    return of_daemon(absl::FailedPreconditionError(
        "it drains and admits no job; 'geminictl drain --undo' there ends that"));
  }
  if (options.wants_gpu && static_cast<size_t>(move.ranks) > room->devices.size()) {
    return of_daemon(absl::ResourceExhaustedError(absl::StrCat(
        base::Counted(move.ranks, "rank"), " need a GPU each, and it has ", room->devices.size())));
  }
  const absl::Status fits =
      CheckRoom({move.ranks, move.rank_device_bytes}, {}, DevicesOf(options, room->devices));
  if (!fits.ok()) return of_daemon(fits);
  if (move.host_bytes <= room->free_host_bytes) return absl::OkStatus();
  return of_daemon(absl::ResourceExhaustedError(
      absl::StrCat("the ranks have ", base::FormatBytes(move.host_bytes),
                   " of host memory, and it has ", base::FormatBytes(room->free_host_bytes),
                   " free; end other jobs, or raise its host_memory")));
}

absl::Status CheckSameData(const MoveRequest& move, const TokenSource& data) {
  if (move.data.empty()) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(const std::string here, SumOfData(data));
  if (here == move.data) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the data at this host differs: ", here,
                                                    ", where the run has ", move.data,
                                                    "; give both hosts the same files"));
}

}  // namespace geminid::trainer
