#include "daemon/memory/host_pool.h"

#include <numa.h>
#include <numaif.h>
#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/mapping.h"
#include "base/memfd.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "daemon/os/event.h"

namespace geminid::memory {
namespace {

// A thread takes this much at a time: small enough to share evenly and to notice a cancellation.
constexpr uint64_t kPopulatePieceBytes = uint64_t{16} << 20;
constexpr unsigned kMaxPopulateThreads = 16;
// Left to the rest of the machine when a pool is about to take what is available.
constexpr uint64_t kHeadroomBytes = uint64_t{64} << 20;

absl::Status CheckAvailable(const PoolOptions& options) {
  const uint64_t available = os::AvailableMemoryBytes();
  if (available >= options.bytes && available - options.bytes >= kHeadroomBytes) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(options.name, " needs ", base::FormatBytes(options.bytes), " (", options.bytes,
                   " bytes) but the machine has only ", base::FormatBytes(available),
                   " available; end other programs, or ask for less"));
}

// The policy belongs to the memfd, not to the mapping, so it also holds for pages that a client
// would touch first.
absl::Status BindToNode(const base::Mapping& mapping, int node) {
  bitmask* const nodes = ::numa_allocate_nodemask();
  ::numa_bitmask_setbit(nodes, static_cast<unsigned>(node));
  const long bound =
      ::mbind(mapping.data(), mapping.bytes(), MPOL_BIND, nodes->maskp, nodes->size + 1, 0);
  const int error = errno;
  ::numa_free_nodemask(nodes);
  return bound == 0 ? absl::OkStatus()
                    : base::SystemError(error, "mbind", absl::StrCat("NUMA node ", node));
}

// MADV_POPULATE_WRITE is of Linux 5.14. Touching instead would meet an exhausted cgroup with
// SIGBUS, which this reports as an error.
absl::Status PopulatePiece(std::byte* begin, uint64_t bytes) {
  if (base::RetryOnEintr([&] { return ::madvise(begin, bytes, MADV_POPULATE_WRITE); }) == 0) {
    return absl::OkStatus();
  }
  if (errno == EINVAL) {
    for (uint64_t at = 0; at < bytes; at += base::kPageBytes) {
      reinterpret_cast<volatile char*>(begin)[at] = 0;
    }
    return absl::OkStatus();
  }
  // The kernel reports a page it could not get as EFAULT.
  return base::SystemError(errno == EFAULT ? ENOMEM : errno, "madvise(MADV_POPULATE_WRITE)",
                           "backing a pool with memory");
}

struct PopulateWork {
  PopulateWork(const base::Mapping& memory, const std::atomic<bool>* stop)
      : mapping(memory), cancelled(stop) {}

  const base::Mapping& mapping;
  const std::atomic<bool>* cancelled;
  std::atomic<uint64_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  absl::Status status;  // guarded by mutex: the first failure
};

void PopulateUntilDone(PopulateWork* work) {
  while (!work->failed.load()) {
    const uint64_t begin = work->next.fetch_add(kPopulatePieceBytes);
    if (begin >= work->mapping.bytes()) return;
    absl::Status status =
        work->cancelled != nullptr && work->cancelled->load()
            ? absl::CancelledError("the daemon is shutting down")
            : PopulatePiece(work->mapping.data() + begin,
                            std::min(kPopulatePieceBytes, work->mapping.bytes() - begin));
    if (status.ok()) continue;
    std::lock_guard<std::mutex> lock(work->mutex);
    work->status.Update(status);
    work->failed.store(true);
  }
}

absl::Status Populate(const base::Mapping& mapping, const std::atomic<bool>* cancelled) {
  PopulateWork work{mapping, cancelled};
  const uint64_t pieces = (mapping.bytes() + kPopulatePieceBytes - 1) / kPopulatePieceBytes;
  const uint64_t helpers =
      std::min<uint64_t>(pieces,
                         std::clamp(std::thread::hardware_concurrency(), 1u, kMaxPopulateThreads)) -
      1;
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < helpers; ++i) threads.emplace_back(PopulateUntilDone, &work);
  PopulateUntilDone(&work);
  for (std::thread& thread : threads) thread.join();
  return work.status;
}

}  // namespace

bool FitsHugePages(uint64_t bytes, const os::HugePages& pages) {
  return pages.page_bytes > 0 && bytes % pages.page_bytes == 0 &&
         bytes / pages.page_bytes <= pages.free_pages;
}

absl::StatusOr<HostPool> HostPool::Create(const PoolOptions& options, const os::Machine& machine) {
  if (options.bytes == 0 || options.bytes % base::kPageBytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.name, ": ", options.bytes, " bytes are not whole pages"));
  }
  const bool reserved = options.huge_pages && FitsHugePages(options.bytes, machine.huge_pages);
  if (!reserved) {
    GEMINID_RETURN_IF_ERROR(CheckAvailable(options));
  }
  absl::StatusOr<base::UniqueFd> fd =
      base::CreateSealedMemfd(options.name, options.bytes, reserved);
  if (!fd.ok()) return fd.status();
  absl::StatusOr<base::Mapping> mapping = base::Mapping::Map(*fd, options.bytes);
  // The free huge pages were counted when the daemon started; others may have taken them.
  if (!mapping.ok() && reserved) {
    PoolOptions ordinary = options;
    ordinary.huge_pages = false;
    return Create(ordinary, machine);
  }
  if (!mapping.ok()) return mapping.status();
  HostPool pool;
  pool.huge_pages_ = reserved;
  if (options.huge_pages && !reserved && machine.huge_pages.shmem_on_advice) {
    pool.huge_pages_ = mapping->UseHugePages();
  }
  if (options.numa_node >= 0 && machine.numa_nodes > 1) {
    GEMINID_RETURN_IF_ERROR(BindToNode(*mapping, options.numa_node));
    pool.numa_node_ = options.numa_node;
  }
  const int64_t begin = os::MonotonicNanoseconds();
  GEMINID_RETURN_IF_ERROR(Populate(*mapping, options.cancelled));
  pool.populate_seconds_ = static_cast<double>(os::MonotonicNanoseconds() - begin) * 1e-9;
  pool.fd_ = *std::move(fd);
  pool.bytes_ = options.bytes;
  return pool;
}

}  // namespace geminid::memory
