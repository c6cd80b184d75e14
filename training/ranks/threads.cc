#include "training/ranks/threads.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/processors.h"
#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

// About as long as waking a thread takes on a virtual machine.
constexpr std::chrono::microseconds kSpin(50);

// Processors with higher numbers count as not shared. As many as cpu_set_t has.
constexpr size_t kProcessorsMax = 1024;

}  // namespace

size_t ThreadsOfShare(const ProcessorShare& share) {
  double processors = 0;
  for (const int processor : share.allowed) {
    const auto index = static_cast<size_t>(processor);
    const double ranks = index < share.ranks.size() ? share.ranks[index] : share.hosts;
    processors += std::min(1.0, share.hosts / std::max(1.0, ranks));
  }
  if (share.quota) processors = std::min(processors, *share.quota / share.ranks_on_host);
  constexpr double kRounding = 1e-6;  // of three thirds
  const auto whole = static_cast<size_t>(processors + kRounding);
  return std::clamp<size_t>(whole, 1, kThreadsMax);
}

absl::StatusOr<size_t> FindThreads(const collectives::RankInfo& info,
                                   collectives::Communicator& communicator) {
  const std::vector<int> allowed = base::AllowedProcessors();
  std::vector<double> ranks(kProcessorsMax, 0);
  for (const int processor : allowed) {
    if (static_cast<size_t>(processor) < ranks.size()) ranks[static_cast<size_t>(processor)] = 1;
  }
  GEMINID_RETURN_IF_ERROR(communicator.AllReduce(ranks, ranks, collectives::ReduceOp::kSum));
  // A launcher that does not say has all on one host, as far as sharing goes.
  const double local = info.local_world_size > 0 ? info.local_world_size : info.world_size;
  return ThreadsOfShare({.allowed = allowed,
                         .ranks = ranks,
                         .hosts = info.world_size / local,
                         .quota = base::ProcessorQuota(),
                         .ranks_on_host = local});
}

absl::StatusOr<std::unique_ptr<kernels::ThreadPool>> MakeThreads(
    std::optional<int> asked, const collectives::RankInfo& info,
    collectives::Communicator& communicator) {
  GEMINID_ASSIGN_OR_RETURN(const size_t found, FindThreads(info, communicator));
  const size_t threads = asked ? static_cast<size_t>(*asked) : found;
  std::unique_ptr<kernels::ThreadPool> pool;
  if (threads == 1) return pool;
  const kernels::ThreadPool::Options options = {
      .threads = threads, .spin = threads <= found ? kSpin : std::chrono::microseconds(0)};
  if (kernels::ThreadPool::Create(options, &pool) != kernels::Status::kOk) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the system does not give this rank ", threads,
                     " threads; give --threads a smaller number, or lift the limit (ulimit -u)"));
  }
  return pool;
}

}  // namespace geminid::trainer
