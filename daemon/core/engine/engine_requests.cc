// Requests from a client's ring. Every field comes from hostile memory and is copied once. No field
// is used before it is checked, and a refused request changes nothing.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "daemon/core/engine/engine.h"
#include "daemon/core/engine/engine_state.h"

namespace geminid::core {
namespace {

using shm::ErrorReason;
using shm::Residency;

constexpr uint16_t kKnownFlags = shm::kAllocateDestination | shm::kPublishWhenDone |
                                 shm::kDropSourceWhenDone | shm::kMayEvict | shm::kNoReply;

// The chunk of an operation on one chunk: the destination, or the source if that is kNoChunk.
ChunkId Subject(const shm::Request& request) {
  return request.destination == shm::kNoChunk ? request.source : request.destination;
}

bool IsAnswered(shm::RequestOp op) {
  return op != shm::RequestOp::kTransfer && op != shm::RequestOp::kTransferDone &&
         op != shm::RequestOp::kBeginMoment;
}

}  // namespace

void Engine::HandleRequest(SessionId id, const shm::Request& request, Time now,
                           std::vector<Outgoing>* out) {
  Session* session = Find(id);
  if (session == nullptr || session->state != SessionState::kAttached) return;
  ++counters_.requests;
  session->again = std::exchange(session->in_doubt, false);
  Outgoing answer{.session = id};
  const Failure failure = Dispatch(session, request, now, &answer.response);
  shm::Response& response = answer.response;
  response.request_id = request.request_id;
  if (!failure.ok()) {
    ++counters_.request_errors;
    response.op = shm::ResponseOp::kError;
    response.status = static_cast<uint16_t>(failure.status.code());
    response.error_code = static_cast<uint8_t>(failure.reason);
    answer.error = std::string(failure.status.message());
    out->push_back(std::move(answer));
  } else if (IsAnswered(request.op) && (request.flags & shm::kNoReply) == 0) {
    response.op = shm::ResponseOp::kDone;
    out->push_back(std::move(answer));
  }
  GrantTransfers(now, out);
}

Engine::Failure Engine::Dispatch(Session* session, const shm::Request& request, Time now,
                                 shm::Response* done) {
  if ((request.flags & ~kKnownFlags) != 0) {
    return {absl::InvalidArgumentError(absl::StrCat("unknown flags ", request.flags)),
            ErrorReason::kMalformed};
  }
  switch (request.op) {
    case shm::RequestOp::kNone:
      break;
    case shm::RequestOp::kTransfer:
      return Transfer(session, request, now);
    case shm::RequestOp::kTransferDone:
      return TransferDone(session, request, now);
    case shm::RequestOp::kAllocateExtent:
      return AllocateExtent(session, request, done);
    case shm::RequestOp::kPublish:
      return Publish(session, request);
    case shm::RequestOp::kDrop:
      return Drop(session, request);
    case shm::RequestOp::kTransition:
      return Transition(session, request);
    case shm::RequestOp::kReserveWorkspace:
      return ReserveWorkspace(session, request, done);
    case shm::RequestOp::kBeginMoment:
      session->moment = request.argument;
      if (session->books.has_value()) session->books->SetMoment(request.argument);
      scheduler_.SetMoment(session->id, static_cast<uint16_t>(request.argument));
      return Failure::None();
  }
  return {
      absl::InvalidArgumentError(absl::StrCat("unknown operation ", static_cast<int>(request.op))),
      ErrorReason::kMalformed};
}

Engine::Failure Engine::NoSuchChunk(ChunkId chunk) {
  return {absl::NotFoundError(absl::StrCat("the session has no chunk ", shm::Index(chunk))),
          ErrorReason::kUnknownChunk};
}

Engine::Failure Engine::AllocateExtent(Session* session, const shm::Request& request,
                                       shm::Response* done) {
  Chunk* chunk = session->Find(Subject(request));
  if (chunk == nullptr) return NoSuchChunk(Subject(request));
  const bool may_evict = (request.flags & shm::kMayEvict) != 0;
  const bool has_it = session->again && StatusOf(*chunk).residency == Residency::kFilling;
  if (!has_it) {
    Failure failure = PlaceExtent(session, chunk, request.device_offset, may_evict);
    if (!failure.ok()) return failure;
  }
  done->device_offset = StatusOf(*chunk).device_offset();
  done->bytes = chunk->bytes;
  return Failure::None();
}

Engine::Failure Engine::Publish(Session* session, const shm::Request& request) {
  Chunk* chunk = session->Find(Subject(request));
  if (chunk == nullptr) return NoSuchChunk(Subject(request));
  const Residency residency = StatusOf(*chunk).residency;
  if (residency == Residency::kResident && session->again) return Failure::None();
  if (residency == Residency::kResident) {
    return {absl::FailedPreconditionError(
                absl::StrCat("chunk \"", chunk->name, "\" is published already")),
            ErrorReason::kAlreadyResident};
  }
  if (residency != Residency::kFilling) {
    return {absl::FailedPreconditionError(absl::StrCat(
                "chunk \"", chunk->name, "\" has no place on the device; give it one first")),
            ErrorReason::kNotResident};
  }
  if (chunk->inbound > 0) {
    return {absl::FailedPreconditionError(absl::StrCat("chunk \"", chunk->name, "\" is written by ",
                                                       chunk->inbound,
                                                       " transfers; wait until they are done")),
            ErrorReason::kExtentBusy};
  }
  PublishChunk(session, chunk);
  return Failure::None();
}

void Engine::PublishChunk(Session* session, Chunk* chunk) {
  ChunkStatus status = StatusOf(*chunk);
  status.residency = Residency::kResident;
  // If the home is lost, the device copy is the only one.
  if (chunk->home_lost && !status.dirty) {
    status.dirty = true;
    BeginDirtyEpoch(chunk);
  }
  manifest_.CountLoad(chunk->record);
  SetStatus(session, chunk, status);
  if (std::exchange(chunk->publish_when_idle, false)) NoteProgress(*chunk);
  Touch(session, chunk);
}

Engine::Failure Engine::Drop(Session* session, const shm::Request& request) {
  Chunk* chunk = session->Find(Subject(request));
  if (chunk == nullptr) return NoSuchChunk(Subject(request));
  if (session->again && StatusOf(*chunk).residency == Residency::kAbsent) return Failure::None();
  return DropChunk(session, chunk);
}

Engine::Failure Engine::DropChunk(Session* session, Chunk* chunk) {
  const ChunkStatus status = StatusOf(*chunk);
  const auto refuse = [chunk](const std::string& why, ErrorReason reason) -> Failure {
    return {absl::FailedPreconditionError(absl::StrCat("chunk \"", chunk->name, "\" ", why)),
            reason};
  };
  if (status.residency == Residency::kAbsent) {
    return refuse("has no device copy to drop", ErrorReason::kNotResident);
  }
  if (chunk->pins > 0) {
    return refuse(absl::StrCat("is used by ", chunk->pins, " transfers; wait until they are done"),
                  ErrorReason::kExtentBusy);
  }
  if (status.residency == Residency::kFilling) {
    RemoveExtent(session, chunk);
    return Failure::None();
  }
  if (status.state == ChunkState::kCompute) {
    return refuse("is COMPUTE; release it first", ErrorReason::kLeased);
  }
  if (status.dirty) {
    return refuse("was changed on the device; write it back first", ErrorReason::kNone);
  }
  if (!TryDrop(session, chunk)) {
    return refuse("is leased; release it first", ErrorReason::kLeased);
  }
  return Failure::None();
}

Engine::Failure Engine::CheckDirty(const Chunk& chunk, const ChunkStatus& status) const {
  if (!chunk.has_home() || status.residency == Residency::kResident) return Failure::None();
  return {absl::FailedPreconditionError(absl::StrCat(
              "chunk \"", chunk.name, "\" cannot be dirty: it is not resident on the device")),
          ErrorReason::kNotResident};
}

Engine::Failure Engine::Transition(Session* session, const shm::Request& request) {
  Chunk* chunk = session->Find(Subject(request));
  if (chunk == nullptr) return NoSuchChunk(Subject(request));
  const uint64_t argument = request.argument;
  const auto to = static_cast<ChunkState>(argument & shm::kStateBits);
  const bool dirty = (argument & shm::kDirtyBit) != 0;
  if ((argument & ~(shm::kStateBits | shm::kDirtyBit)) != 0 || !shm::IsValid(to) ||
      (dirty && to == ChunkState::kFree)) {
    return {absl::InvalidArgumentError(absl::StrCat("transition argument ", argument)),
            ErrorReason::kMalformed};
  }
  ChunkStatus status = StatusOf(*chunk);
  // A request for the state that the chunk has may only mark it dirty.
  if (to != status.state || (!dirty && !session->again)) {
    absl::Status legal = CheckTransition(chunk->name, status.state, to);
    if (!legal.ok()) return {std::move(legal), ErrorReason::kIllegalTransition};
  }
  if (dirty) {
    if (Failure failure = CheckDirty(*chunk, status); !failure.ok()) return failure;
  }
  status.state = to;
  // The device copy is the only copy of a chunk without a home, dirty or not.
  if (dirty && chunk->has_home()) {
    status.dirty = true;
    BeginDirtyEpoch(chunk);
  }
  if (to == ChunkState::kFree) {  // nothing is left to be written back, or to be lost
    status.dirty = false;
    if (std::exchange(chunk->home_lost, false)) NoteProgress(*chunk);
  }
  SetStatus(session, chunk, status);
  Touch(session, chunk);
  return Failure::None();
}

Engine::Failure Engine::ReserveWorkspace(Session* session, const shm::Request& request,
                                         shm::Response* done) {
  if (!session->arena.has_value()) {
    return {absl::FailedPreconditionError(
                "the session has no device memory; ask for some when it attaches"),
            ErrorReason::kArenaFull};
  }
  ExtentAllocator& arena = *session->arena;
  absl::Status status = arena.ReserveTop(request.bytes);
  if (!status.ok() && (request.flags & shm::kMayEvict) != 0 &&
      request.bytes <= arena.size_bytes()) {
    const uint64_t limit = arena.size_bytes() - arena.RoundUp(request.bytes);
    if (MakeRoom(session, limit, arena.size_bytes())) status = arena.ReserveTop(request.bytes);
  }
  if (!status.ok()) {
    return {
        absl::ResourceExhaustedError(absl::StrCat(
            "workspace of ", base::FormatBytes(request.bytes), ": ", std::string(status.message()),
            "; chunks hold ", base::FormatBytes(arena.used_bytes()), " of ",
            base::FormatBytes(arena.size_bytes()))),
        ErrorReason::kArenaFull};
  }
  if (session->books.has_value()) session->books->SetWorkspace(arena.top_bytes());
  done->device_offset = arena.limit_bytes();
  done->bytes = arena.top_bytes();
  return Failure::None();
}

}  // namespace geminid::core
