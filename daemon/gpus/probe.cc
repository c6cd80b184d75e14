#include "daemon/gpus/probe.h"

#include <poll.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "daemon/gpus/agent_process.h"
#include "daemon/os/event.h"
#include "proto/shm/types.h"

namespace geminid::gpus {
namespace {

// False once `deadline`, in monotonic nanoseconds, has passed without anything to read.
bool AwaitReply(const AgentProcess& probe, int64_t deadline) {
  constexpr int64_t kNanosecondsPerMillisecond = 1'000'000;
  const int64_t left = deadline - os::MonotonicNanoseconds();
  if (left <= 0) return false;
  pollfd entry = {.fd = probe.socket().get(), .events = POLLIN, .revents = 0};
  const int milliseconds = static_cast<int>(left / kNanosecondsPerMillisecond) + 1;
  return base::RetryOnEintr([&] { return ::poll(&entry, 1, milliseconds); }) > 0;
}

}  // namespace

absl::StatusOr<std::vector<agent::GpuFacts>> FindGpus(const std::string& program,
                                                      absl::Duration patience) {
  GEMINID_ASSIGN_OR_RETURN(AgentProcess probe, AgentProcess::Start(program, ""));
  const int64_t deadline = os::MonotonicNanoseconds() + absl::ToInt64Nanoseconds(patience);
  std::vector<agent::GpuFacts> gpus;
  while (AwaitReply(probe, deadline)) {
    GEMINID_ASSIGN_OR_RETURN(std::optional<AgentProcess::ReceivedReply> heard, probe.Receive());
    if (!heard.has_value()) continue;
    const agent::Reply& reply = heard->reply;
    if (reply.type == agent::ReplyType::kFailed) return agent::StatusOf(reply);
    if (reply.type == agent::ReplyType::kNoMore) return gpus;
    if (reply.type != agent::ReplyType::kFound || gpus.size() >= shm::kMaxDevices) {
      return absl::InternalError(absl::StrCat("the probe for GPUs sent an unexpected reply, ",
                                              static_cast<uint32_t>(reply.type), ", after GPU ",
                                              gpus.size()));
    }
    gpus.push_back(reply.gpu);
  }
  return absl::DeadlineExceededError(
      absl::StrCat("the CUDA driver did not answer for ", absl::FormatDuration(patience)));
}

}  // namespace geminid::gpus
