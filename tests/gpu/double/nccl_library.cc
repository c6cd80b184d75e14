// libnccl of the double: its calls; nccl_links.h moves the bytes. It refuses what NCCL's
// documentation says it refuses. Calls of a communicator that does not block return kInProgress,
// and queued work continues until it is done or the communicator is aborted.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/nccl_api.h"
#include "tests/gpu/double/faults.h"
#include "tests/gpu/double/functions.h"
#include "tests/gpu/double/hooks.h"
#include "tests/gpu/double/nccl_links.h"
#include "tests/gpu/double/node_file.h"

namespace geminid::gpu {
struct NcclCommTag {
  std::shared_ptr<gpu_double::NcclLinks> links;
  bool blocking = true;
  std::map<void*, size_t> registered = {};  // registered memory, which is its own handle
};
}  // namespace geminid::gpu

namespace geminid::gpu_double {
namespace {

using namespace geminid::gpu;  // NOLINT: this file is one library

constexpr int kVersion = 22809;

NcclResult Pass(int function) { return static_cast<NcclResult>(CountCall(function)); }

// The stream work of a group, or of a call outside of a group.
struct Queued {
  NcclComm comm = nullptr;
  CUstream stream = nullptr;
  std::vector<NcclTransfer> transfers;
};

struct Group {
  int depth = 0;
  std::vector<Queued> queued;
};
Group& ThisGroup() {
  thread_local Group group;
  return group;
}

// The place of device memory's bytes; if the node says that GPUs can access it, of any memory.
std::byte* PlaceOf(const void* address, size_t bytes, bool writes) {
  auto* const place = static_cast<std::byte*>(FindHooks()->mirror(address, bytes, writes));
  if (place != nullptr || !ThisNode().pageable_memory_access) return place;
  return static_cast<std::byte*>(const_cast<void*>(address));
}

struct Work {
  std::shared_ptr<NcclLinks> links;
  std::vector<NcclTransfer> transfers;
};

CUresult RunWork(void* data) {
  const std::unique_ptr<Work> work(static_cast<Work*>(data));
  for (NcclTransfer& transfer : work->transfers) {
    const bool writes = transfer.kind == NcclTransfer::Kind::kReceive;
    transfer.place = PlaceOf(transfer.address, transfer.bytes, writes);
    if (transfer.place == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  work->links->Run(work->transfers);
  return CUDA_SUCCESS;
}

NcclResult Launch(const Queued& queued) {
  const NcclComm comm = queued.comm;
  if (comm->links->state() != NcclResult::kSuccess) return comm->links->state();
  auto work = std::make_unique<Work>(Work{comm->links, queued.transfers});
  if (FindHooks()->enqueue(queued.stream, RunWork, work.get()) != CUDA_SUCCESS) {
    return NcclResult::kUnhandledCudaError;
  }
  work.release();  // RunWork owns it
  return comm->blocking ? NcclResult::kSuccess : NcclResult::kInProgress;
}

NcclResult Queue(NcclComm comm, CUstream stream, std::vector<NcclTransfer> transfers) {
  if (comm == nullptr) return NcclResult::kInvalidArgument;
  Group& group = ThisGroup();
  if (group.depth == 0) return Launch({comm, stream, std::move(transfers)});
  for (Queued& queued : group.queued) {
    if (queued.comm != comm || queued.stream != stream) continue;
    queued.transfers.insert(queued.transfers.end(), transfers.begin(), transfers.end());
    return NcclResult::kSuccess;
  }
  group.queued.push_back({comm, stream, std::move(transfers)});
  return NcclResult::kSuccess;
}

NcclTransfer SendOf(const void* from, size_t bytes, int peer) {
  return {NcclTransfer::Kind::kSend, peer, const_cast<void*>(from), bytes};
}
NcclTransfer ReceiveOf(void* to, size_t bytes, int peer) {
  return {NcclTransfer::Kind::kReceive, peer, to, bytes};
}
// Adds a transfer to the own rank, over its own link.
void AddCopy(const void* from, void* to, size_t bytes, int self, std::vector<NcclTransfer>* list) {
  if (from == to) return;
  list->push_back(SendOf(from, bytes, self));
  list->push_back(ReceiveOf(to, bytes, self));
}

// NCCL requires that all ranks of a call pass registered memory or none does; else "undefined
// behavior". So a communicator with registered memory accepts no other.
bool MayBeGiven(NcclComm comm, const void* data, size_t bytes) {
  if (comm->registered.empty()) return true;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  for (const auto& [registered, size] : comm->registered) {
    const auto from = reinterpret_cast<uintptr_t>(registered);
    if (from <= begin && begin + bytes <= from + size) return true;
  }
  std::fprintf(stderr, "driver double: NCCL was told of memory and is given other\n");
  return false;
}

// Whether all of it is device memory that allows reads and writes.
[[maybe_unused]] bool IsDeviceMemory(const void* data, size_t bytes) {
  return FindHooks()->mirror(data, bytes, /*writes=*/true) != nullptr;
}

}  // namespace
}  // namespace geminid::gpu_double

#define GEMINID_EXPORT extern "C" __attribute__((visibility("default")))
using namespace geminid::gpu_double;  // NOLINT: this file is one library
using namespace geminid::gpu;         // NOLINT

// The names are the real library's.
// NOLINTBEGIN(readability-identifier-naming)
GEMINID_EXPORT const char* ncclGetErrorString(NcclResult result) {
  switch (result) {
    case NcclResult::kSuccess:
      return "no error";
    case NcclResult::kUnhandledCudaError:
      return "unhandled cuda error";
    case NcclResult::kInvalidArgument:
      return "invalid argument";
    case NcclResult::kInvalidUsage:
      return "invalid usage";
    case NcclResult::kRemoteError:
      return "remote process exited or there was a network error";
    case NcclResult::kInProgress:
      return "NCCL operation in progress";
    default:
      return "internal error";
  }
}
GEMINID_EXPORT const char* ncclGetLastError(NcclComm comm) {
  return comm == nullptr ? "" : comm->links->last_error();
}
GEMINID_EXPORT NcclResult ncclGetVersion(int* version) {
  if (const NcclResult fault = Pass(kNcclIndex_get_version); fault != NcclResult::kSuccess) {
    return fault;
  }
  if (version == nullptr) return NcclResult::kInvalidArgument;
  *version = kVersion;
  return NcclResult::kSuccess;
}
GEMINID_EXPORT NcclResult ncclGetUniqueId(NcclId* id) {
  if (const NcclResult fault = Pass(kNcclIndex_get_unique_id); fault != NcclResult::kSuccess) {
    return fault;
  }
  if (id == nullptr) return NcclResult::kInvalidArgument;
  static std::atomic<int> count = 0;
  *id = {};
  std::snprintf(id->internal, kNcclIdBytes, "geminid-nccl-double-%d-%d", getpid(), count++);
  return NcclResult::kSuccess;
}
GEMINID_EXPORT NcclResult ncclCommInitRankConfig(NcclComm* comm, int ranks, NcclId id, int rank,
                                                 NcclConfig* config) {
  if (const NcclResult fault = Pass(kNcclIndex_comm_init); fault != NcclResult::kSuccess) {
    return fault;
  }
  if (comm == nullptr || ranks < 1 || rank < 0 || rank >= ranks) {
    return NcclResult::kInvalidArgument;
  }
  const NcclConfig defaults{.blocking = 1};
  if (config == nullptr) config = const_cast<NcclConfig*>(&defaults);
  if (config->magic != defaults.magic || config->size < sizeof(NcclConfig)) {
    return NcclResult::kInvalidArgument;
  }
  const Hooks* const hooks = FindHooks();
  const int device = hooks == nullptr ? -1 : hooks->current_device();
  if (device < 0) return NcclResult::kUnhandledCudaError;
  // Compares GPUs: to NCCL the instances of one GPU are the same device.
  *comm =
      new NcclCommTag{.links = NcclLinks::Meet(id.internal, rank, ranks, GpuOf(ThisNode(), device)),
                      .blocking = config->blocking != 0};
  if (!(*comm)->blocking) return NcclResult::kInProgress;
  while ((*comm)->links->state() == NcclResult::kInProgress) std::this_thread::yield();
  return (*comm)->links->state();
}
GEMINID_EXPORT NcclResult ncclCommGetAsyncError(NcclComm comm, NcclResult* result) {
  if (const NcclResult fault = Pass(kNcclIndex_comm_async_error); fault != NcclResult::kSuccess) {
    return fault;
  }
  if (comm == nullptr || result == nullptr) return NcclResult::kInvalidArgument;
  *result = comm->links->state();
  return NcclResult::kSuccess;
}
// Queued work is done when the stream has run it, so there is nothing else to wait for.
GEMINID_EXPORT NcclResult ncclCommFinalize(NcclComm comm) {
  if (const NcclResult fault = Pass(kNcclIndex_comm_finalize); fault != NcclResult::kSuccess) {
    return fault;
  }
  if (comm == nullptr) return NcclResult::kInvalidArgument;
  return comm->blocking ? NcclResult::kSuccess : NcclResult::kInProgress;
}
GEMINID_EXPORT NcclResult ncclCommDestroy(NcclComm comm) {
  if (const NcclResult fault = Pass(kNcclIndex_comm_destroy); fault != NcclResult::kSuccess) {
    return fault;
  }
  if (comm == nullptr) return NcclResult::kInvalidArgument;
  delete comm;  // its links end after their queued work
  return NcclResult::kSuccess;
}
GEMINID_EXPORT NcclResult ncclCommAbort(NcclComm comm) {
  if (const NcclResult fault = Pass(kNcclIndex_comm_abort); fault != NcclResult::kSuccess) {
    return fault;
  }
  if (comm == nullptr) return NcclResult::kInvalidArgument;
  comm->links->Abort();
  delete comm;
  return NcclResult::kSuccess;
}

// As in NCCL 2.19 and later; an older version is built without these.
#ifndef GEMINID_OLD_NCCL
GEMINID_EXPORT NcclResult ncclCommRegister(NcclComm comm, void* data, size_t bytes, void** handle) {
  if (const NcclResult fault = Pass(kNcclIndex_comm_register); fault != NcclResult::kSuccess) {
    return fault;
  }
  if (comm == nullptr || handle == nullptr || bytes == 0 || !IsDeviceMemory(data, bytes)) {
    return NcclResult::kInvalidArgument;
  }
  comm->registered[data] = bytes;
  *handle = data;
  return NcclResult::kSuccess;
}
// Memory that is not mapped any more was freed too early: NCCL still used it.
GEMINID_EXPORT NcclResult ncclCommDeregister(NcclComm comm, void* handle) {
  if (const NcclResult fault = Pass(kNcclIndex_comm_deregister); fault != NcclResult::kSuccess) {
    return fault;
  }
  if (comm == nullptr) return NcclResult::kInvalidArgument;
  const auto found = comm->registered.find(handle);
  if (found == comm->registered.end()) return NcclResult::kInvalidUsage;
  if (!IsDeviceMemory(found->first, found->second)) {
    std::fprintf(stderr, "driver double: registered memory was unmapped before NCCL was told\n");
    std::abort();
  }
  comm->registered.erase(found);
  return NcclResult::kSuccess;
}
#endif

GEMINID_EXPORT NcclResult ncclAllGather(const void* from, void* to, size_t count, NcclType,
                                        NcclComm comm, CUstream stream) {
  if (const NcclResult fault = Pass(kNcclIndex_all_gather); fault != NcclResult::kSuccess) {
    return fault;
  }
  if (comm == nullptr) return NcclResult::kInvalidArgument;
  const size_t all = count * static_cast<size_t>(comm->links->ranks());
  if (!MayBeGiven(comm, from, count) || !MayBeGiven(comm, to, all)) {
    return NcclResult::kInvalidUsage;
  }
  std::vector<NcclTransfer> transfers;
  const int self = comm->links->rank();
  auto* const places = static_cast<std::byte*>(to);
  for (int peer = 0; peer < comm->links->ranks(); ++peer) {
    std::byte* const place = places + static_cast<size_t>(peer) * count;
    if (peer == self) {
      AddCopy(from, place, count, self, &transfers);
      continue;
    }
    transfers.push_back(SendOf(from, count, peer));
    transfers.push_back(ReceiveOf(place, count, peer));
  }
  return Queue(comm, stream, std::move(transfers));
}
GEMINID_EXPORT NcclResult ncclBroadcast(const void* from, void* to, size_t count, NcclType,
                                        int root, NcclComm comm, CUstream stream) {
  if (const NcclResult fault = Pass(kNcclIndex_broadcast); fault != NcclResult::kSuccess) {
    return fault;
  }
  if (comm == nullptr || root < 0 || root >= comm->links->ranks()) {
    return NcclResult::kInvalidArgument;
  }
  if (!MayBeGiven(comm, from, count) || !MayBeGiven(comm, to, count)) {
    return NcclResult::kInvalidUsage;
  }
  std::vector<NcclTransfer> transfers;
  const int self = comm->links->rank();
  if (self != root) {
    transfers.push_back(ReceiveOf(to, count, root));
  } else {
    AddCopy(from, to, count, self, &transfers);
    for (int peer = 0; peer < comm->links->ranks(); ++peer) {
      if (peer != self) transfers.push_back(SendOf(from, count, peer));
    }
  }
  return Queue(comm, stream, std::move(transfers));
}
GEMINID_EXPORT NcclResult ncclSend(const void* from, size_t count, NcclType, int peer,
                                   NcclComm comm, CUstream stream) {
  if (const NcclResult fault = Pass(kNcclIndex_send); fault != NcclResult::kSuccess) return fault;
  if (comm == nullptr || peer < 0 || peer >= comm->links->ranks()) {
    return NcclResult::kInvalidArgument;
  }
  if (!MayBeGiven(comm, from, count)) return NcclResult::kInvalidUsage;
  return Queue(comm, stream, {SendOf(from, count, peer)});
}
GEMINID_EXPORT NcclResult ncclRecv(void* to, size_t count, NcclType, int peer, NcclComm comm,
                                   CUstream stream) {
  if (const NcclResult fault = Pass(kNcclIndex_receive); fault != NcclResult::kSuccess) {
    return fault;
  }
  if (comm == nullptr || peer < 0 || peer >= comm->links->ranks()) {
    return NcclResult::kInvalidArgument;
  }
  if (!MayBeGiven(comm, to, count)) return NcclResult::kInvalidUsage;
  return Queue(comm, stream, {ReceiveOf(to, count, peer)});
}
GEMINID_EXPORT NcclResult ncclGroupStart() {
  if (const NcclResult fault = Pass(kNcclIndex_group_start); fault != NcclResult::kSuccess) {
    return fault;
  }
  ++ThisGroup().depth;
  return NcclResult::kSuccess;
}
GEMINID_EXPORT NcclResult ncclGroupEnd() {
  if (const NcclResult fault = Pass(kNcclIndex_group_end); fault != NcclResult::kSuccess) {
    return fault;
  }
  Group& group = ThisGroup();
  if (group.depth == 0) return NcclResult::kInvalidUsage;
  if (--group.depth > 0) return NcclResult::kSuccess;
  NcclResult result = NcclResult::kSuccess;
  for (const Queued& queued : std::exchange(group.queued, {})) {
    const NcclResult launched = Launch(queued);
    if (launched != NcclResult::kSuccess) result = launched;
  }
  return result;
}
// NOLINTEND(readability-identifier-naming)
