#include "daemon/memory/host_pool.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/machine_memory.h"
#include "base/mapping.h"
#include "base/memfd.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "daemon/memory/headroom.h"
#include "daemon/os/event.h"
#include "daemon/os/log.h"

namespace geminid::memory {
namespace {

// A thread takes this much at a time: small enough to share evenly and to notice a cancellation.
constexpr uint64_t kPopulatePieceBytes = uint64_t{16} << 20;
constexpr unsigned kMaxPopulateThreads = 16;

bool HasRoom(uint64_t available_bytes, uint64_t bytes) {
  return available_bytes >= bytes && available_bytes - bytes >= kHeadroomBytes;
}

std::string ByNode(const std::vector<os::NodeMemory>& nodes) {
  return nodes.size() > 1 ? absl::StrCat(" (", os::AvailableText(nodes), ")") : "";
}

// For ordinary pages: the machine's available memory. For reserved huge pages, which are set apart:
// the bytes that the limits of cgroups leave.
uint64_t AvailableBytes(bool reserved) {
  if (!reserved) return base::AvailableMemoryBytes();
  return base::ReadOwnCgroupMemory().available_bytes.value_or(std::numeric_limits<uint64_t>::max());
}

absl::StatusOr<Admission::Hold> Admit(const PoolOptions& options, bool reserved,
                                      Admission* admission,
                                      const std::vector<os::NodeMemory>& nodes) {
  uint64_t available = 0;
  Admission::Hold hold =
      admission->Admit(options.bytes, kHeadroomBytes, [&available, &options, reserved] {
        return available = options.available_bytes ? options.available_bytes(reserved)
                                                   : AvailableBytes(reserved);
      });
  if (hold) return hold;
  const uint64_t promised = admission->promised_bytes();
  const std::string others = promised == 0 ? ""
                                           : absl::StrCat(", of which others are being given ",
                                                          base::FormatBytes(promised));
  return absl::ResourceExhaustedError(absl::StrCat(
      options.name, " needs ", base::FormatBytes(options.bytes), " (", options.bytes,
      " bytes) and leaves ", base::FormatBytes(kHeadroomBytes), " to other programs, but ",
      reserved ? "cgroups' memory limits, against which huge pages count, leave only "
               : "there are only ",
      base::FormatBytes(available), reserved ? "" : " available", ByNode(nodes), others, " (",
      base::DescribeTotalMemory(), "); end other programs, or ask for less"));
}

// The node that the pool is bound to: the one asked for if it has room, else none.
absl::StatusOr<int> NodeFor(const PoolOptions& options, const std::vector<os::NodeMemory>& nodes) {
  if (options.numa_node == shm::kNoNumaNode || nodes.size() < 2) return shm::kNoNumaNode;
  uint64_t available = 0;
  for (const os::NodeMemory& memory : nodes) {
    if (memory.node == options.numa_node) available = memory.available_bytes;
  }
  const bool sparse = options.backing == PageBacking::kSparse;
  if (sparse || HasRoom(available, options.bytes)) return options.numa_node;
  const std::string problem = absl::StrCat(
      options.name, " needs ", base::FormatBytes(options.bytes), " (", options.bytes,
      " bytes) on NUMA node ", options.numa_node, ", which has ", base::FormatBytes(available),
      " available, of which ", base::FormatBytes(kHeadroomBytes), " stay free", ByNode(nodes));
  if (options.numa_strict) {
    return absl::ResourceExhaustedError(absl::StrCat(
        problem, "; end other programs on that node, ask for less, or give the device no node"));
  }
  os::Log(os::LogLevel::kWarning, "a pool lies on all NUMA nodes", {{"why", problem}});
  return shm::kNoNumaNode;
}

// MADV_POPULATE_WRITE needs Linux 5.14; before, each page is touched. In an exhausted cgroup
// touching raises SIGBUS, where madvise reports an error.
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
  PopulateWork(const base::Mapping& memory, const std::atomic<bool>* stop,
               Admission::Hold* promised)
      : mapping(memory), cancelled(stop), hold(promised) {}

  const base::Mapping& mapping;
  const std::atomic<bool>* cancelled;
  Admission::Hold* hold;
  std::atomic<uint64_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  absl::Status status;  // guarded by mutex: the first failure
};

void PopulateUntilDone(PopulateWork* work) {
  while (!work->failed.load()) {
    const uint64_t begin = work->next.fetch_add(kPopulatePieceBytes);
    if (begin >= work->mapping.bytes()) return;
    const uint64_t bytes = std::min(kPopulatePieceBytes, work->mapping.bytes() - begin);
    absl::Status status = work->cancelled != nullptr && work->cancelled->load()
                              ? absl::CancelledError("the daemon is shutting down")
                              : PopulatePiece(work->mapping.data() + begin, bytes);
    if (status.ok()) {
      work->hold->Made(bytes);
      continue;
    }
    std::lock_guard<std::mutex> lock(work->mutex);
    work->status.Update(status);
    work->failed.store(true);
  }
}

absl::Status Populate(const base::Mapping& mapping, const std::atomic<bool>* cancelled,
                      Admission::Hold hold) {
  PopulateWork work{mapping, cancelled, &hold};
  const uint64_t pieces = (mapping.bytes() + kPopulatePieceBytes - 1) / kPopulatePieceBytes;
  const uint64_t helpers =
      std::min<uint64_t>(pieces,
                         std::clamp(std::thread::hardware_concurrency(), 1u, kMaxPopulateThreads)) -
      1;
  std::vector<std::thread> threads;
  try {
    for (uint64_t i = 0; i < helpers; ++i) threads.emplace_back(PopulateUntilDone, &work);
  } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch)
    // The limit of processes is reached: fewer threads take longer.
  }
  PopulateUntilDone(&work);
  for (std::thread& thread : threads) thread.join();
  return work.status;
}

}  // namespace

bool FitsHugePages(uint64_t bytes, const os::HugePages& pages) {
  return pages.page_bytes > 0 && bytes % pages.page_bytes == 0 &&
         bytes / pages.page_bytes <= pages.free_pages;
}

int NodeOfLocalRank(int local_rank, int local_ranks, const std::vector<os::NodeMemory>& nodes) {
  if (nodes.size() < 2 || local_ranks <= 0 || local_rank < 0 || local_rank >= local_ranks) {
    return shm::kNoNumaNode;
  }
  const size_t block = static_cast<size_t>(local_rank) * nodes.size() / local_ranks;
  return nodes[block].node;
}

absl::StatusOr<HostPool> HostPool::Adopt(base::UniqueFd fd) {
  struct stat file = {};
  if (::fstat(fd.get(), &file) != 0) return base::SystemError(errno, "fstat", "a pool");
  const auto bytes = static_cast<uint64_t>(file.st_size);
  GEMINID_RETURN_IF_ERROR(base::CheckRevocable(fd, bytes));
  HostPool pool;
  pool.fd_ = std::move(fd);
  pool.bytes_ = bytes;
  return pool;
}

absl::StatusOr<HostPool> HostPool::Create(const PoolOptions& options, const os::Machine& machine) {
  if (options.bytes == 0 || options.bytes % base::kPageBytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.name, ": ", options.bytes, " bytes are not whole pages"));
  }
  const std::vector<os::NodeMemory> nodes = options.numa->Nodes();
  const bool reserved = options.huge_pages && FitsHugePages(options.bytes, machine.huge_pages);
  const bool populate = options.backing == PageBacking::kPopulated;
  Admission alone;
  Admission::Hold hold;
  if (populate && (!reserved || machine.huge_pages.counted_by_cgroups)) {
    Admission* admission = options.admission == nullptr ? &alone : options.admission;
    GEMINID_ASSIGN_OR_RETURN(hold, Admit(options, reserved, admission, nodes));
  }
  GEMINID_ASSIGN_OR_RETURN(const int node, NodeFor(options, nodes));
  GEMINID_ASSIGN_OR_RETURN(base::UniqueFd fd,
                           base::CreateRevocableMemfd(options.name, options.bytes, reserved));
  absl::StatusOr<base::Mapping> mapping = base::Mapping::Map(fd, options.bytes);
  // The free huge pages were counted when the daemon started; others may have taken them.
  if (!mapping.ok() && reserved) {
    PoolOptions ordinary = options;
    ordinary.huge_pages = false;
    hold = Admission::Hold();  // the retry needs it
    return Create(ordinary, machine);
  }
  if (!mapping.ok()) return mapping.status();
  HostPool pool;
  pool.huge_pages_ = reserved;
  if (options.huge_pages && !reserved && machine.huge_pages.shmem_on_advice) {
    pool.huge_pages_ = mapping->UseHugePages();
  }
  if (node != shm::kNoNumaNode) {
    GEMINID_RETURN_IF_ERROR(
        options.numa->Bind(mapping->data(), mapping->bytes(), node, options.numa_strict));
    pool.numa_node_ = node;
  }
  const int64_t begin = os::MonotonicNanoseconds();
  if (populate) GEMINID_RETURN_IF_ERROR(Populate(*mapping, options.cancelled, std::move(hold)));
  pool.populate_seconds_ = static_cast<double>(os::MonotonicNanoseconds() - begin) * 1e-9;
  pool.fd_ = std::move(fd);
  pool.bytes_ = options.bytes;
  return pool;
}

uint64_t BytesForPools(const os::HugePages& reserved, uint64_t promised_bytes,
                       const std::function<uint64_t(bool reserved)>& available_bytes) {
  const auto left = [&](bool of_reserved) {
    const uint64_t available =
        available_bytes ? available_bytes(of_reserved) : AvailableBytes(of_reserved);
    return available - std::min(available, kHeadroomBytes + promised_bytes);
  };
  uint64_t in_reserved = reserved.free_pages * reserved.page_bytes;
  if (reserved.counted_by_cgroups) in_reserved = std::min(in_reserved, left(true));
  return std::max(left(false), in_reserved);
}

}  // namespace geminid::memory
