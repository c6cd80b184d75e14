// A thread that takes workspace of an engine while other threads use it.
#ifndef GEMINID_TESTS_CLIENT_ZERO_ENGINE_WORKSPACE_BESIDE_H_
#define GEMINID_TESTS_CLIENT_ZERO_ENGINE_WORKSPACE_BESIDE_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <random>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/session.h"
#include "geminid/zero.h"

namespace geminid::zero {

// Takes blocks, fills them, checks that nothing else writes to them, and returns them.
class WorkspaceBeside {
 public:
  // Takes blocks of at most this size. The engine must outlive this object.
  WorkspaceBeside(Session* session, Engine* engine, uint64_t most_bytes, uint32_t seed)
      : session_(session), engine_(engine), most_bytes_(most_bytes), random_(seed), thread_([this] {
          TakeBlocks();
        }) {}
  WorkspaceBeside(const WorkspaceBeside&) = delete;
  WorkspaceBeside& operator=(const WorkspaceBeside&) = delete;
  ~WorkspaceBeside() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
  }

  // DATA_LOSS: something else wrote to a block.
  absl::Status End() {
    ended_ = true;
    thread_.join();
    return failure_;
  }

 private:
  void TakeBlocks() {
    while (!ended_ && failure_.ok()) {
      absl::StatusOr<Workspace::Block> block =
          engine_->workspace().Allocate(1 + random_() % most_bytes_);
      if (block.ok()) {
        UseBlock(*block);
      } else if (!absl::IsResourceExhausted(block.status())) {
        return;  // the engine has failed, which the program's own thread reports
      }
      std::this_thread::yield();
    }
  }

  void UseBlock(const Workspace::Block& block) {
    std::byte* const bytes = session_->HostAddress(block.data());
    const auto pattern = static_cast<std::byte>(random_());
    std::fill_n(bytes, block.bytes(), pattern);
    std::this_thread::yield();
    if (std::count(bytes, bytes + block.bytes(), pattern) !=
        static_cast<std::ptrdiff_t>(block.bytes())) {
      failure_ = absl::DataLossError("a block of another thread was overwritten");
    }
  }

  Session* const session_;
  Engine* const engine_;
  const uint64_t most_bytes_;
  std::minstd_rand random_;
  std::atomic<bool> ended_ = false;
  absl::Status failure_;  // read when the thread has ended
  std::thread thread_;
};

}  // namespace geminid::zero

#endif  // GEMINID_TESTS_CLIENT_ZERO_ENGINE_WORKSPACE_BESIDE_H_
