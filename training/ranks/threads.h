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

// The processors of its host that a rank may use. Pure.
struct ProcessorShare {
  std::span<const int> allowed;      // the processors of this rank
  std::span<const double> ranks;     // by processor: how many ranks may use it, over all hosts
  double hosts = 1;                  // hosts with equally many ranks
  std::optional<double> quota = {};  // the CPU quota of this host's ranks together, in processors
  double ranks_on_host = 1;
};

// The number of whole processors in the share, at least 1. If n ranks may use a processor, it
// counts as 1 / n for each; a quota is divided evenly. So all ranks of a host together have one
// thread per processor, whether they are bound to processors of their own or share all of them.
size_t ThreadsOfShare(const ProcessorShare& share);

// The same for the processors that the ranks find on their hosts. All ranks must call it.
absl::StatusOr<size_t> FindThreads(const collectives::RankInfo& info,
                                   collectives::Communicator& communicator);

// A pool of `asked` threads, or of FindThreads(); null for one thread. If each thread has a
// processor of its own, threads spin before they sleep. All ranks must call it. RESOURCE_EXHAUSTED:
// the system gave no thread.
absl::StatusOr<std::unique_ptr<kernels::ThreadPool>> MakeThreads(
    std::optional<int> asked, const collectives::RankInfo& info,
    collectives::Communicator& communicator);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_THREADS_H_
