// Memory handed to one session as one descriptor: host pools, and the slabs of the host device.
#ifndef GEMINID_DAEMON_MEMORY_HOST_POOL_H_
#define GEMINID_DAEMON_MEMORY_HOST_POOL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/memfd.h"
#include "base/unique_fd.h"
#include "daemon/memory/admission.h"
#include "daemon/os/machine.h"
#include "daemon/os/numa.h"
#include "proto/shm/device.h"

namespace geminid::memory {

enum class Backing {
  kPopulated,  // every page exists from the start
  kSparse,     // a page exists once it is touched, and if there is none left, the toucher dies
};

struct PoolOptions {
  std::string name;  // shown in /proc/<pid>/maps of whoever maps it
  uint64_t bytes = 0;
  int numa_node = shm::kNoNumaNode;  // kNoNumaNode: wherever the populating threads run
  // On that node or not at all. Otherwise a pool that the node cannot hold lies on all of them.
  bool numa_strict = false;
  const os::Numa* numa = &os::SystemNuma();
  bool huge_pages = false;
  Backing backing = Backing::kPopulated;
  const std::atomic<bool>* cancelled = nullptr;  // may be null; true ends Create early
  // What there is of reserved huge pages, or else of ordinary memory; empty: as the kernel says.
  std::function<uint64_t(bool reserved)> available_bytes{};
  Admission* admission = nullptr;  // of all that make memory on this machine; null: none else does
};

// A memfd of exactly the bytes asked for, which can only ever become smaller. Unless it is sparse,
// all of them are backed by zeroed pages before Create returns: memory that was promised is there,
// and training never waits for a first touch. Nothing of it is mapped here afterwards, so a client
// that shrinks it hurts nobody else. Never used for another session: a forked child of a dead
// client may still write to it, so pools are revoked and made anew.
class HostPool {
 public:
  // Populates with as many threads as pay (0.2 to 0.5 s/GiB with one). RESOURCE_EXHAUSTED when the
  // machine, or with numa_strict the node, has less available than asked for, before anything is
  // touched: memory that the kernel merely promises ends in the OOM killer. The message has the
  // numbers of each node. CANCELLED when *cancelled became true.
  static absl::StatusOr<HostPool> Create(const PoolOptions& options, const os::Machine& machine);

  // Takes over a pool that an earlier daemon made. INVALID_ARGUMENT when it is none: it could grow,
  // or has no bytes, because it was revoked.
  static absl::StatusOr<HostPool> Adopt(base::UniqueFd fd);

  // Gives the memory back to the kernel, whoever still has a descriptor or a mapping of it: see
  // base::Revoke. Dropping the pool without it leaves the memory to those.
  absl::Status Revoke() const { return base::Revoke(fd_); }

  const base::UniqueFd& fd() const { return fd_; }
  uint64_t bytes() const { return bytes_; }
  int numa_node() const { return numa_node_; }  // kNoNumaNode: on all of them, or not known
  bool huge_pages() const { return huge_pages_; }
  double populate_seconds() const { return populate_seconds_; }

 private:
  HostPool() = default;

  base::UniqueFd fd_;
  uint64_t bytes_ = 0;
  int numa_node_ = shm::kNoNumaNode;
  bool huge_pages_ = false;
  double populate_seconds_ = 0;
};

// True when `bytes` can come from reserved huge pages of this machine: whole pages, and enough
// free.
bool FitsHugePages(uint64_t bytes, const os::HugePages& pages);

// What pools of ordinary pages may still take of this machine, or of the cgroup of this process.
uint64_t BytesForPools();

// Local ranks in blocks: rank r of R on N nodes is on node r * N / R. kNoNumaNode where there is
// one node only, or `local_ranks` is 0: unknown.
int NodeOfLocalRank(int local_rank, int local_ranks, const std::vector<os::NodeMemory>& nodes);

}  // namespace geminid::memory

#endif  // GEMINID_DAEMON_MEMORY_HOST_POOL_H_
