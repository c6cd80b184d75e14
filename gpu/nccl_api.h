// NCCL, which moves memory between GPUs, as a table of functions that are loaded at run time:
// nothing of it is linked. The table has only the functions that the project calls.
//
// NCCL's header needs the CUDA runtime's, so the types are our own; a test compares them with
// nccl.h where that is installed. This header does not need Abseil.
#ifndef GEMINID_GPU_NCCL_API_H_
#define GEMINID_GPU_NCCL_API_H_

#include <cstddef>
#include <string>

#include "gpu/driver_api.h"

namespace geminid::gpu {

using NcclComm = struct NcclCommTag*;

inline constexpr size_t kNcclIdBytes = 128;
struct NcclId {
  char internal[kNcclIdBytes];
};

enum class NcclResult : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum class NcclType : int { kUint8 = 1 };

// ncclConfig_t as in NCCL 2.14; later versions accept it by its size and fill in the rest.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;  // calls return kInProgress, and can be aborted
};

// One line per function: member, name in the library, parameters.
#define GEMINID_NCCL_FUNCTIONS(X)                                                                \
  X(get_version, "ncclGetVersion", (int*))                                                       \
  X(get_unique_id, "ncclGetUniqueId", (NcclId*))                                                 \
  X(comm_init, "ncclCommInitRankConfig", (NcclComm*, int, NcclId, int, NcclConfig*))             \
  X(comm_finalize, "ncclCommFinalize", (NcclComm))                                               \
  X(comm_destroy, "ncclCommDestroy", (NcclComm))                                                 \
  X(comm_abort, "ncclCommAbort", (NcclComm))                                                     \
  X(comm_async_error, "ncclCommGetAsyncError", (NcclComm, NcclResult*))                          \
  X(all_gather, "ncclAllGather", (const void*, void*, size_t, NcclType, NcclComm, CUstream))     \
  X(broadcast, "ncclBroadcast", (const void*, void*, size_t, NcclType, int, NcclComm, CUstream)) \
  X(send, "ncclSend", (const void*, size_t, NcclType, int, NcclComm, CUstream))                  \
  X(receive, "ncclRecv", (void*, size_t, NcclType, int, NcclComm, CUstream))                     \
  X(group_start, "ncclGroupStart", ())                                                           \
  X(group_end, "ncclGroupEnd", ())

// Functions of later versions: null if the library lacks one of them. 2.19: registered memory may
// be moved without a copy through NCCL's own memory.
#define GEMINID_NEWER_NCCL_FUNCTIONS(X)                                   \
  X(comm_register, "ncclCommRegister", (NcclComm, void*, size_t, void**)) \
  X(comm_deregister, "ncclCommDeregister", (NcclComm, void*))

struct NcclApi {
#define GEMINID_MEMBER(member, name, parameters) NcclResult(*member) parameters = nullptr;
  GEMINID_NCCL_FUNCTIONS(GEMINID_MEMBER)
  GEMINID_NEWER_NCCL_FUNCTIONS(GEMINID_MEMBER)
#undef GEMINID_MEMBER
  const char* (*error_string)(NcclResult) = nullptr;
  const char* (*last_error)(NcclComm) = nullptr;  // nullable argument
  std::string path;                               // of the library's file
};

// Names the library's file, or "none", instead of the search (gpu/library_search.h).
inline constexpr char kNcclPathVariable[] = "GEMINID_LIBNCCL";

// Fills the table. False, with `error` set, if there is no library or it is older than 2.14.
bool LoadNcclApi(NcclApi* api, std::string* error);

// The table of this process, loaded by the first call. Null, with `error` set, for the process's
// life, if there is no library. Thread-safe.
const NcclApi* ProcessNccl(std::string* error);

}  // namespace geminid::gpu

#endif  // GEMINID_GPU_NCCL_API_H_
