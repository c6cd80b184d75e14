#include "training/data/in_blocks.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/start_thread.h"

namespace geminid::trainer {

absl::Status InBlocks(const BlockRange& range,
                      const std::function<absl::Status(uint64_t first, uint64_t count)>& work,
                      const std::function<void(uint64_t done, uint64_t of)>& on_progress) {
  std::mutex mutex;
  uint64_t next = range.first;
  uint64_t done = 0;
  uint64_t failed_at = std::numeric_limits<uint64_t>::max();
  absl::Status failed;
  const auto run = [&] {
    std::unique_lock lock(mutex);
    while (next < range.end && failed.ok()) {
      const uint64_t first = next;
      const uint64_t count = std::min(range.block, range.end - first);
      next += count;
      lock.unlock();
      absl::Status status = work(first, count);
      lock.lock();
      done += count;
      if (!status.ok() && first < failed_at) {
        failed_at = first;
        failed = std::move(status);
      }
      if (on_progress) on_progress(done, range.end - range.first);
    }
  };
  std::vector<std::thread> threads;
  const uint64_t blocks = (range.end - range.first + range.block - 1) / range.block;
  while (threads.size() + 1 < std::min<uint64_t>(range.threads, blocks)) {
    absl::StatusOr<std::thread> thread = base::StartThread(run);
    if (!thread.ok()) break;
    threads.push_back(*std::move(thread));
  }
  run();
  for (std::thread& thread : threads) thread.join();
  return failed;
}

}  // namespace geminid::trainer
