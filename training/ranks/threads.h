// Chooses how many threads a rank computes on.
#ifndef GEMINID_TRAINING_RANKS_THREADS_H_
#define GEMINID_TRAINING_RANKS_THREADS_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "geminid/rank_info.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// What a rank may use of its host's processors. Pure.
struct ProcessorShare {
  std::span<const int> allowed;      // to this rank
  std::span<const double> ranks;     // allowed on each processor, by number, on all hosts
  double hosts = 1;                  // among which the ranks are spread alike
  std::optional<double> quota = {};  // processors' time of this host's ranks together
  double ranks_on_host = 1;
};

// Whole processors of the share, at least 1: a processor that several ranks may use counts to each
// of them in part, and a quota is shared alike. So ranks bound to processors of their own, and
// ranks that share all of them, come to one thread per processor in all.
size_t ThreadsOfShare(const ProcessorShare& share);

// The same of the processors that the ranks find. All ranks must call it.
absl::StatusOr<size_t> FindThreads(const collectives::RankInfo& info,
                                   collectives::Communicator& communicator);

// `asked` threads, or as many as FindThreads says; null for one. Threads that have a processor each
// spin before they sleep. All ranks must call it. RESOURCE_EXHAUSTED if the system gives no thread.
absl::StatusOr<std::unique_ptr<kernels::ThreadPool>> MakeThreads(
    std::optional<int> asked, const collectives::RankInfo& info,
    collectives::Communicator& communicator);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_THREADS_H_
