// Transfers: which copies are allowed, and what happens when a copy is done.
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/core/engine/engine.h"
#include "daemon/core/engine/engine_state.h"

namespace geminid::core {
namespace {

using shm::ErrorReason;
using shm::Residency;

bool Has(const shm::Request& request, uint16_t flag) { return (request.flags & flag) != 0; }

// Is [offset, offset + bytes) inside a chunk of `chunk_bytes`?
bool IsInside(uint64_t offset, uint64_t bytes, uint64_t chunk_bytes) {
  return offset <= chunk_bytes && bytes <= chunk_bytes - offset;
}

absl::Status Malformed(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("transfer: ", why));
}

}  // namespace

Engine::Failure Engine::CheckRange(const Session& session, const shm::Request& request) const {
  const Chunk* source = session.Find(request.source);
  const Chunk* destination = session.Find(request.destination);
  if (source == nullptr) return NoSuchChunk(request.source);
  if (destination == nullptr) return NoSuchChunk(request.destination);
  if (static_cast<int>(request.priority) >= shm::kPriorities) {
    return {Malformed(absl::StrCat("no priority ", static_cast<int>(request.priority))),
            ErrorReason::kMalformed};
  }
  if (request.cause == TransferCause::kNone || static_cast<int>(request.cause) >= kCauses) {
    return {Malformed(absl::StrCat("no cause ", static_cast<int>(request.cause))),
            ErrorReason::kMalformed};
  }
  if (source->kind == ChunkKind::kShared || destination->kind == ChunkKind::kShared) {
    return {Malformed("memory that ranks share is not the daemon's, and is not copied"),
            ErrorReason::kMalformed};
  }
  if (source->is_on_disk() || destination->is_on_disk()) {
    return {Malformed("files on disk are the client's, and are not copied"),
            ErrorReason::kMalformed};
  }
  if (request.bytes == 0) return {Malformed("zero bytes"), ErrorReason::kMalformed};
  if (!IsInside(request.source_offset, request.bytes, source->bytes) ||
      !IsInside(request.destination_offset, request.bytes, destination->bytes)) {
    return {absl::OutOfRangeError(absl::StrCat(
                "transfer of ", request.bytes, " bytes from ", request.source_offset, " of ",
                source->bytes, " to ", request.destination_offset, " of ", destination->bytes)),
            ErrorReason::kOutOfRange};
  }
  return Failure::None();
}

// Home to device: into the chunk's own device copy, or into a chunk without a home.
Engine::Failure Engine::CheckLoad(const Chunk& source, const Chunk& destination,
                                  const shm::Request& request) const {
  if (Has(request, shm::kDropSourceWhenDone)) {
    return {Malformed("a load leaves no device copy of its source to drop"),
            ErrorReason::kMalformed};
  }
  if (&source != &destination && StatusOf(source).dirty) {
    return {absl::FailedPreconditionError(absl::StrCat("the home of chunk \"", source.name,
                                                       "\" is stale; write it back first")),
            ErrorReason::kAlreadyResident};
  }
  const ChunkStatus status = StatusOf(destination);
  if (status.residency == Residency::kResident) {
    return {absl::FailedPreconditionError(absl::StrCat(
                "chunk \"", destination.name, "\" is resident and may be leased; drop it first")),
            ErrorReason::kAlreadyResident};
  }
  const bool allocate = Has(request, shm::kAllocateDestination);
  if (status.residency == Residency::kAbsent && !allocate) {
    return {absl::FailedPreconditionError(absl::StrCat(
                "chunk \"", destination.name, "\" has no place on the device; ask for one")),
            ErrorReason::kNotResident};
  }
  // A later piece of the same load may ask again, for the same place.
  if (status.residency == Residency::kFilling && allocate &&
      request.device_offset != shm::kAnyOffset && request.device_offset != status.device_offset()) {
    return {
        absl::FailedPreconditionError(absl::StrCat(
            "chunk \"", destination.name, "\" has its place at offset ", status.device_offset())),
        ErrorReason::kExtentBusy};
  }
  return Failure::None();
}

// Device to home: to the chunk's own home, or to that of another chunk.
Engine::Failure Engine::CheckStore(const Chunk& source, const Chunk& destination,
                                   const shm::Request& request) const {
  if (Has(request, shm::kPublishWhenDone) || Has(request, shm::kAllocateDestination)) {
    return {Malformed("a copy to a home neither allocates nor publishes on the device"),
            ErrorReason::kMalformed};
  }
  const Residency residency = StatusOf(source).residency;
  // A chunk without a home may also be saved from an extent that its client filled itself.
  const bool filled = residency == Residency::kFilling && source.inbound == 0;
  if (residency != Residency::kResident && (source.has_home() || !filled)) {
    return {absl::FailedPreconditionError(
                absl::StrCat("chunk \"", source.name, "\" is not resident on the device")),
            ErrorReason::kNotResident};
  }
  if (&source != &destination && StatusOf(destination).residency != Residency::kAbsent) {
    return {
        absl::FailedPreconditionError(absl::StrCat("chunk \"", destination.name,
                                                   "\" has a device copy that would become stale; "
                                                   "drop it first")),
        ErrorReason::kAlreadyResident};
  }
  return Failure::None();
}

Engine::Failure Engine::CheckTransfer(const Session& session, const shm::Request& request,
                                      Direction* direction) const {
  if (Failure failure = CheckRange(session, request); !failure.ok()) return failure;
  const Chunk& source = *session.Find(request.source);
  const Chunk& destination = *session.Find(request.destination);
  bool load = source.has_home();
  if (&source == &destination) {
    if (!source.has_home() || request.source_offset != request.destination_offset) {
      return {
          Malformed("a chunk is copied onto itself between its home and its device copy, at one "
                    "offset"),
          ErrorReason::kMalformed};
    }
    load = Has(request, shm::kAllocateDestination);
  } else if (source.has_home() == destination.has_home()) {
    return {Malformed(absl::StrCat("from kind ", shm::Name(source.kind), " to kind ",
                                   shm::Name(destination.kind),
                                   ": one must have a home and the other none")),
            ErrorReason::kMalformed};
  }
  *direction = load ? Direction::kHostToDevice : Direction::kDeviceToHost;
  Failure failure =
      load ? CheckLoad(source, destination, request) : CheckStore(source, destination, request);
  if (failure.ok() &&
      scheduler_.QueuedCount(session.id) >= scheduler_.limits().queued_per_session) {
    failure = {absl::ResourceExhaustedError(absl::StrCat(scheduler_.QueuedCount(session.id),
                                                         " transfers are queued; wait for some")),
               ErrorReason::kQueueFull};
  }
  return failure;
}

Engine::Failure Engine::Transfer(Session* session, const shm::Request& request, Time now) {
  if (session->again && session->books.has_value() &&
      session->books->HasTransfer(request.request_id)) {
    return Failure::None();
  }
  Direction direction = Direction::kNone;
  if (Failure failure = CheckTransfer(*session, request, &direction); !failure.ok()) {
    return failure;
  }
  Chunk* source = session->Find(request.source);
  Chunk* destination = session->Find(request.destination);
  if (direction == Direction::kHostToDevice &&
      StatusOf(*destination).residency == Residency::kAbsent) {
    Failure failure =
        PlaceExtent(session, destination, request.device_offset, Has(request, shm::kMayEvict));
    if (!failure.ok()) return failure;
  }
  TransferRequest transfer{.request_id = request.request_id,
                           .direction = direction,
                           .bytes = request.bytes,
                           .priority = request.priority,
                           .cause = request.cause,
                           .deadline_moment = request.deadline_moment,
                           .source = request.source,
                           .destination = request.destination,
                           .source_offset = request.source_offset,
                           .destination_offset = request.destination_offset,
                           .flags = request.flags,
                           .dirty_epoch = source->dirty_epoch};
  if (direction == Direction::kHostToDevice && source->home_lost) {
    // The client has the commit record. By this load it says that it knows the home's content.
    source->home_lost = false;
    NoteProgress(*source);
    SetStatus(session, source, StatusOf(*source));
  }
  // Cannot fail: CheckTransfer saw room in the queue, and the books have as much.
  if (session->books.has_value()) transfer.place = *session->books->AddTransfer(transfer, now);
  scheduler_.Enqueue(session->id, transfer, now);
  Count(session, transfer, 1);
  Touch(session, source);
  Touch(session, destination);
  return Failure::None();
}

// Adds the transfer to, or takes it from, the counts of the chunks that it touches.
void Engine::Count(Session* session, const TransferRequest& request, int by) {
  Chunk* source = session->Find(request.source);
  Chunk* destination = session->Find(request.destination);
  const bool load = request.direction == Direction::kHostToDevice;
  Chunk* on_device = load ? destination : source;
  Chunk* at_home = load ? source : destination;
  on_device->pins += by;
  at_home->home_uses += by;
  if (load) destination->inbound += by;
  UpdateEvictionEntry(session, on_device);
}

// A home is not valid while it is being written.
void Engine::CountHomeWrite(Session* session, Chunk* chunk, int by) {
  chunk->home_writes += by;
  SetStatus(session, chunk, StatusOf(*chunk));
}

void Engine::GrantTransfers(Time now, std::vector<Outgoing>* out) {
  for (const Ticket& ticket : scheduler_.Grant(now)) {
    Session* session = Find(ticket.session);
    Chunk* destination = session->Find(ticket.request.destination);
    if (session->books.has_value()) session->books->Grant(ticket.request.place, ticket);
    destination->tickets_into += 1;
    manifest_.SetTransfer(destination->record, ticket.id);
    if (ticket.request.direction == Direction::kDeviceToHost) {
      CountHomeWrite(session, destination, 1);
    }
    out->push_back(
        {.session = ticket.session, .response = Describe(*session, ticket), .error = {}});
  }
}

shm::Response Engine::Describe(const Session& session, const Ticket& ticket) const {
  const TransferRequest& request = ticket.request;
  const bool load = request.direction == Direction::kHostToDevice;
  const Chunk& at_home = *session.Find(load ? request.source : request.destination);
  const Chunk& on_device = *session.Find(load ? request.destination : request.source);
  const uint64_t home_offset = load ? request.source_offset : request.destination_offset;
  const uint64_t device_offset = load ? request.destination_offset : request.source_offset;
  shm::Response response{};
  response.request_id = request.request_id;
  response.op = shm::ResponseOp::kTicket;
  response.direction = request.direction;
  response.completion_index = ticket.completion_index;
  response.ticket = shm::Value(ticket.id);
  response.pool = at_home.pool;
  response.host_offset = at_home.home_offset + home_offset;
  response.device_offset = StatusOf(on_device).device_offset() + device_offset;
  response.bytes = request.bytes;
  return response;
}

Engine::Failure Engine::TransferDone(Session* session, const shm::Request& request, Time now) {
  const TicketId id{request.argument};
  const Ticket* ticket = scheduler_.Find(session->id, id);
  if (ticket == nullptr && request.argument < FirstTicketOf(manifest_.epoch())) {
    return Failure::None();  // an earlier daemon's: FinishRestore has settled it
  }
  if (ticket == nullptr) {
    return {absl::NotFoundError(absl::StrCat("no ticket ", request.argument, " is in flight")),
            ErrorReason::kUnknownTicket};
  }
  const uint64_t word = tables_->ReadCompletion(session->id, ticket->completion_index);
  if (word != request.argument) {
    return {absl::InvalidArgumentError(absl::StrCat("completion word ", ticket->completion_index,
                                                    " says ", word, ", not ", request.argument,
                                                    "; write it before reporting the ticket done")),
            ErrorReason::kMalformed};
  }
  const TransferRequest transfer = ticket->request;
  scheduler_.Complete(session->id, id, now);
  return Settle(session, transfer);
}

Engine::Failure Engine::Settle(Session* session, const TransferRequest& transfer) {
  Chunk* source = session->Find(transfer.source);
  Chunk* destination = session->Find(transfer.destination);
  Count(session, transfer, -1);
  destination->tickets_into -= 1;
  if (destination->tickets_into == 0) manifest_.SetTransfer(destination->record, kNoTicket);
  if (transfer.direction == Direction::kDeviceToHost)
    SettleHomeWrite(session, destination, transfer);
  if ((transfer.flags & shm::kPublishWhenDone) != 0) {
    destination->publish_when_idle = true;
    NoteProgress(*destination);
  }
  if ((transfer.flags & shm::kDropSourceWhenDone) != 0) {
    source->drop_when_idle = true;
    NoteProgress(*source);
  }
  // All that follows from the transfer is recorded, or is due when its chunks are idle.
  if (session->books.has_value()) session->books->RemoveTransfer(transfer.place);
  Failure failure = SettleIdle(session, destination);
  return failure.ok() && source != destination ? SettleIdle(session, source) : failure;
}

// A chunk is clean again once each of its bytes was written back since it last became dirty. A lost
// home is valid again once each of its bytes was written.
void Engine::SettleHomeWrite(Session* session, Chunk* chunk, const TransferRequest& transfer) {
  CountHomeWrite(session, chunk, -1);
  ChunkStatus status = StatusOf(*chunk);
  const bool back = transfer.source == transfer.destination;
  const bool counts =
      back ? status.dirty && transfer.dirty_epoch == chunk->dirty_epoch : chunk->home_lost;
  if (!counts) return;
  const uint64_t begin = transfer.destination_offset;
  chunk->written_back.Add(begin, begin + transfer.bytes);
  manifest_.AddWrittenBack(chunk->record, {begin, begin + transfer.bytes});
  if (!chunk->written_back.Covers(0, chunk->bytes)) return;
  // The written ranges are cleared only after their consequences are stored.
  status.dirty = false;
  if (std::exchange(chunk->home_lost, false)) NoteProgress(*chunk);
  SetStatus(session, chunk, status);
  chunk->written_back.Clear();
  manifest_.ClearWrittenBack(chunk->record);
}

Engine::Failure Engine::SettleIdle(Session* session, Chunk* chunk) {
  if (chunk->publish_when_idle && chunk->inbound == 0) PublishChunk(session, chunk);
  if (!chunk->drop_when_idle || chunk->pins > 0) return Failure::None();
  chunk->drop_when_idle = false;
  Failure failure = DropChunk(session, chunk);
  NoteProgress(*chunk);
  return failure;
}

}  // namespace geminid::core
