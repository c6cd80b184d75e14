// The connections of the ranks of a communicator of the NCCL double: a socket each way between any
// two ranks, in one process or several.
#ifndef GEMINID_TESTS_GPU_DOUBLE_NCCL_LINKS_H_
#define GEMINID_TESTS_GPU_DOUBLE_NCCL_LINKS_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/nccl_api.h"

namespace geminid::gpu_double {

// One message of device memory; `place` is the real place of its bytes.
struct NcclTransfer {
  enum class Kind { kSend, kReceive };
  Kind kind = Kind::kSend;
  int peer = 0;
  void* address = nullptr;
  size_t bytes = 0;
  std::byte* place = nullptr;
};

// Thread-safe.
class NcclLinks {
 public:
  // Begins to meet the ranks of `id`, and returns. state() is kInProgress until all have come, and
  // kInvalidUsage if two of them have one device, as in NCCL.
  static std::shared_ptr<NcclLinks> Meet(const std::string& id, int rank, int ranks, int device);
  NcclLinks(const NcclLinks&) = delete;
  NcclLinks& operator=(const NcclLinks&) = delete;
  ~NcclLinks();

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  gpu::NcclResult state() const { return state_; }
  const char* last_error() const;

  // Runs all transfers at once, those of one peer and direction in order. If a peer is gone, the
  // state becomes kRemoteError, and Run waits for Abort, like a kernel of NCCL.
  void Run(const std::vector<NcclTransfer>& transfers);
  // Ends this rank's transfers.
  void Abort();

 private:
  struct Link {
    int out = -1;
    int in = -1;
  };
  NcclLinks(const std::string& id, int rank, int ranks, int device)
      : id_(id), rank_(rank), ranks_(ranks), device_(device), links_(static_cast<size_t>(ranks)) {}

  void MeetAll();
  bool Dial(int peer);
  bool Answer();
  // Runs the transfers of one peer and direction. False if the peer is gone.
  bool RunInOrder(const std::vector<NcclTransfer>& transfers, NcclTransfer::Kind kind, int peer);
  void AwaitAbort();

  const std::string id_;
  const int rank_;
  const int ranks_;
  const int device_;
  int listener_ = -1;
  std::vector<Link> links_;
  std::atomic<gpu::NcclResult> state_ = gpu::NcclResult::kInProgress;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> aborted_ = false;
};

}  // namespace geminid::gpu_double

#endif  // GEMINID_TESTS_GPU_DOUBLE_NCCL_LINKS_H_
