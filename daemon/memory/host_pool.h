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

enum class PageBacking {
  kPopulated,  // every page exists from the start
  kSparse,     // a page exists once it is touched; if none is left, the toucher dies
};

struct PoolOptions {
  std::string name;  // shown in /proc/<pid>/maps of processes that map it
  uint64_t bytes = 0;
  int numa_node = shm::kNoNumaNode;  // kNoNumaNode: wherever the populating threads run
  // True: on that node or not at all. False: a pool that it cannot hold lies on all nodes.
  bool numa_strict = false;
  const os::Numa* numa = &os::SystemNuma();
  bool huge_pages = false;
  PageBacking backing = PageBacking::kPopulated;
  const std::atomic<bool>* cancelled = nullptr;  // may be null; true ends Create early
  // The available bytes, of reserved huge pages or of ordinary memory; empty: as the kernel says.
  std::function<uint64_t(bool reserved)> available_bytes{};
  Admission* admission = nullptr;  // shared by all that make memory here; null: nobody else does
};

// A memfd of exactly the requested bytes, which can only become smaller. Unless it is sparse,
// zeroed pages back all of it before Create returns: promised memory exists, and training never
// waits for a first touch. It is not mapped here afterwards, so a client that shrinks it harms
// nobody else. It is never used for another session, because a forked child of a dead client may
// still write to it: pools are revoked and made anew.
class HostPool {
 public:
  // Populates with as many threads as help (0.2 to 0.5 s/GiB with one). RESOURCE_EXHAUSTED before
  // anything is touched: the machine, or with numa_strict the node, has less available than asked
  // for. Otherwise the OOM killer would strike. The message has the numbers of each node.
  // CANCELLED: *cancelled became true.
  static absl::StatusOr<HostPool> Create(const PoolOptions& options, const os::Machine& machine);

  // Takes over a pool that an earlier daemon made. INVALID_ARGUMENT: it is none, because it could
  // grow, or has no bytes since it was revoked.
  static absl::StatusOr<HostPool> Adopt(base::UniqueFd fd);

  // Gives the memory back to the kernel, even if processes have descriptors or mappings of it: see
  // base::Revoke. Destroying the pool alone leaves the memory to those processes.
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

// The bytes that a pool may still take of this machine, or of the cgroup of this process. The
// maximum of ordinary pages, less `promised_bytes` of other pools, and of the free pages of
// `reserved`: no pool lies in both. `available_bytes`: as in PoolOptions; empty: the kernel's.
uint64_t BytesForPools(const os::HugePages& reserved, uint64_t promised_bytes,
                       const std::function<uint64_t(bool reserved)>& available_bytes = {});

// Local ranks in blocks: rank r of R on N nodes is on node r * N / R. kNoNumaNode: there is one
// node only, or `local_ranks` is 0 (unknown).
int NodeOfLocalRank(int local_rank, int local_ranks, const std::vector<os::NodeMemory>& nodes);

}  // namespace geminid::memory

#endif  // GEMINID_DAEMON_MEMORY_HOST_POOL_H_
