#include "tools/trainer/rank_session.h"

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "geminid/connect.h"

namespace geminid::trainer {

absl::StatusOr<std::unique_ptr<collectives::Communicator>> ConnectRanks(
    const TrainOptions& options, const RankContext& context) {
  collectives::ConnectOptions connect;
  connect.timeout = options.timeout;
  connect.connect_timeout = options.timeout;
  return collectives::Connect(context.info, connect);
}

absl::StatusOr<std::unique_ptr<Session>> ConnectDaemon(const TrainOptions& options,
                                                       const RankContext& context,
                                                       uint64_t unlimited_bytes) {
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
  connect.copy_bytes_per_second = static_cast<double>(options.copy_bytes_per_second);
  absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(connect);
  if (absl::IsResourceExhausted(session.status()) && !options.device_memory_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "without --device-memory nothing leaves the device, for which each rank takes ",
        base::FormatBytes(connect.device_memory_bytes),
        "; give --device-memory a size: ", std::string(session.status().message())));
  }
  return session;
}

}  // namespace geminid::trainer
