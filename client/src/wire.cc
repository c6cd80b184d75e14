#include "client/src/wire.h"

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "client/src/daemon_ended.h"
#include "proto/shm/chunk_state.h"
#include "proto/shm/lease.h"

namespace geminid {
namespace {

// The public enumerations repeat those of shared memory, so that public headers need not include
// them.
template <typename A, typename B>
constexpr bool Same(A a, B b) {
  return static_cast<uint64_t>(a) == static_cast<uint64_t>(b);
}
static_assert(Same(kNoChunk, shm::kNoChunk));
static_assert(Same(ChunkKind::kWeight, shm::ChunkKind::kWeight));
static_assert(Same(ChunkKind::kRemainder, shm::ChunkKind::kRemainder));
static_assert(Same(ChunkKind::kExpAvg, shm::ChunkKind::kExpAvg));
static_assert(Same(ChunkKind::kExpAvgSq, shm::ChunkKind::kExpAvgSq));
static_assert(Same(ChunkKind::kGradient, shm::ChunkKind::kGradient));
static_assert(Same(ChunkKind::kGatheredWeight, shm::ChunkKind::kGatheredWeight));
static_assert(Same(ChunkKind::kSpare, shm::ChunkKind::kSpare));
static_assert(Same(ChunkKind::kGeneric, shm::ChunkKind::kGeneric));
static_assert(Same(ChunkKind::kShared, shm::ChunkKind::kShared));
static_assert(Same(ChunkKind::kOnDisk, shm::ChunkKind::kOnDisk));
static_assert(Same(ChunkState::kFree, shm::ChunkState::kFree));
static_assert(Same(ChunkState::kHold, shm::ChunkState::kHold));
static_assert(Same(ChunkState::kCompute, shm::ChunkState::kCompute));
static_assert(Same(ChunkState::kHoldAfterBackward, shm::ChunkState::kHoldAfterBackward));
static_assert(Same(ChunkState::kReadyForReduce, shm::ChunkState::kReadyForReduce));
static_assert(Same(Residency::kNone, shm::Residency::kNone));
static_assert(Same(Residency::kAbsent, shm::Residency::kAbsent));
static_assert(Same(Residency::kFilling, shm::Residency::kFilling));
static_assert(Same(Residency::kResident, shm::Residency::kResident));
static_assert(Same(Residency::kEvictPending, shm::Residency::kEvictPending));
static_assert(Same(Residency::kEvicting, shm::Residency::kEvicting));
static_assert(Same(TransferCause::kDemand, shm::TransferCause::kDemand));
static_assert(Same(TransferCause::kPrefetch, shm::TransferCause::kPrefetch));
static_assert(Same(TransferCause::kWriteBack, shm::TransferCause::kWriteBack));
static_assert(Same(TransferCause::kUpdate, shm::TransferCause::kUpdate));
static_assert(Same(Priority::kUrgent, shm::Priority::kUrgent));
static_assert(Same(Priority::kNormal, shm::Priority::kNormal));
static_assert(Same(Priority::kBackground, shm::Priority::kBackground));
static_assert(Same(StallCause::kCopy, shm::StallCause::kCopy));
static_assert(Same(StallCause::kGather, shm::StallCause::kGather));
static_assert(Same(StallCause::kUpdate, shm::StallCause::kUpdate));
static_assert(Same(StallCause::kReduce, shm::StallCause::kReduce));
static_assert(Same(StallCause::kSpace, shm::StallCause::kSpace));
static_assert(Same(StallCause::kDaemon, shm::StallCause::kDaemon));
static_assert(Same(StallCause::kCollective, shm::StallCause::kCollective));
static_assert(Same(StallCause::kData, shm::StallCause::kData));
static_assert(kStallCauses == shm::kStallCauses);
static_assert(kAnyOffset == shm::kAnyOffset);
static_assert(kNoDeadline == shm::kNoDeadline);
static_assert(kExtentAlignmentBytes == shm::kSlotBytes);
static_assert(kMaxArenaBytes == shm::kMaxArenaBytes);

}  // namespace

shm::Request MakeRequest(shm::RequestOp op) {
  shm::Request request = {};
  request.op = op;
  request.priority = shm::Priority::kNormal;
  request.deadline_moment = kNoDeadline;
  request.source = shm::kNoChunk;
  request.destination = shm::kNoChunk;
  return request;
}

shm::Request MakeRequest(shm::RequestOp op, ChunkId chunk) {
  shm::Request request = MakeRequest(op);
  request.source = request.destination = ToShm(chunk);
  return request;
}

absl::Status Explain(const absl::Status& status, const std::string& doing,
                     const device::MemoryInfo& memory) {
  if (IsJobEnded(status)) return status;  // whatever the call was doing
  const char* hint = "";
  std::string room;
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    room = absl::StrCat(" (the arena has ", base::FormatBytes(memory.imported_bytes), ")");
    hint = "; drop chunks, release leases, or connect with more device memory";
  }
  return absl::Status(status.code(), absl::StrCat(doing, ": ", status.message(), room, hint));
}

}  // namespace geminid
