#include "client/src/transfers.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/deadline.h"
#include "client/src/wire.h"

namespace geminid {

// One transfer in progress. At most one of its pieces waits for a ticket, so a refusal leaves
// nothing to undo. While pieces are copied, the next one is being granted.
class Transfers::Active : public std::enable_shared_from_this<Active> {
 public:
  Active(Transfers* owner, const TransferSpec& spec, OnRefusal on_refusal,
         std::shared_ptr<Pending::State> outcome)
      : owner_(owner),
        spec_(spec),
        on_refusal_(std::move(on_refusal)),
        outcome_(std::move(outcome)) {
    const std::lock_guard lock(owner_->in_progress_.mutex);
    ++owner_->in_progress_.count;
  }

  void AskForNextPiece();

 private:
  // The part of the transfer that one ticket covers.
  struct TicketPart {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  TicketPart NextPiece() const;
  shm::Request RequestFor(const TicketPart& piece) const;
  void OnAnswer(const TicketPart& piece, const Answer& answer);
  absl::Status PrepareCopy(const TicketPart& piece, const shm::Response& ticket,
                           device::Copy* copy) const;
  void OnCopied(const shm::Response& ticket, const absl::Status& status);
  void Fail(const absl::Status& status);
  void EndPart(int* parts);
  void Conclude();
  void Complete();
  void SendFinal(shm::RequestOp op, ChunkId chunk);
  std::string Describe() const;

  Transfers* const owner_;
  const TransferSpec spec_;
  const OnRefusal on_refusal_;
  const std::shared_ptr<Pending::State> outcome_;

  std::mutex mutex_;
  // Guarded by mutex_:
  uint64_t asked_bytes_ = 0;
  int parts_ = 0;        // a piece waiting for its ticket, and running copies
  int final_steps_ = 0;  // publish and drop
  absl::Status error_;
};

std::string Transfers::Active::Describe() const {
  return absl::StrCat("copying ", base::FormatBytes(spec_.bytes), " from chunk ",
                      Index(spec_.source), " to chunk ", Index(spec_.destination));
}

Transfers::Active::TicketPart Transfers::Active::NextPiece() const {
  return {asked_bytes_, std::min(spec_.bytes - asked_bytes_, kMaxPieceBytes)};
}

shm::Request Transfers::Active::RequestFor(const TicketPart& piece) const {
  shm::Request request = MakeRequest(shm::RequestOp::kTransfer);
  request.priority = static_cast<shm::Priority>(spec_.priority);
  request.cause = static_cast<shm::TransferCause>(spec_.cause);
  request.deadline_moment = spec_.deadline_moment;
  request.source = ToShm(spec_.source);
  request.destination = ToShm(spec_.destination);
  request.source_offset = spec_.source_offset + piece.offset;
  request.destination_offset = spec_.destination_offset + piece.offset;
  request.bytes = piece.bytes;
  // On every piece, because the flag marks a copy of a chunk onto itself as a load. Later pieces
  // find the extent of the first one.
  if (spec_.allocate_destination) {
    request.flags |= shm::kAllocateDestination;
    request.device_offset = spec_.device_offset;
    if (spec_.may_evict) request.flags |= shm::kMayEvict;
  }
  return request;
}

void Transfers::Active::AskForNextPiece() {
  TicketPart piece;
  {
    const std::lock_guard lock(mutex_);
    piece = NextPiece();
    asked_bytes_ += piece.bytes;
    ++parts_;
  }
  owner_->port_->Submit(
      RequestFor(piece),
      [self = shared_from_this(), piece](const Answer& answer) { self->OnAnswer(piece, answer); });
}

void Transfers::Active::OnAnswer(const TicketPart& piece, const Answer& answer) {
  absl::Status status = answer.status;
  if (!status.ok() && on_refusal_) {
    on_refusal_(static_cast<shm::ErrorReason>(answer.response.error_code));
  }
  if (status.ok() && owner_->stopping_.load()) {
    status = absl::CancelledError("the session is ending");
  }
  device::Copy copy;
  if (status.ok()) status = PrepareCopy(piece, answer.response, &copy);
  if (!status.ok()) {
    Fail(status);
    EndPart(&parts_);
    return;
  }
  bool more;
  {
    const std::lock_guard lock(mutex_);
    more = asked_bytes_ < spec_.bytes && error_.ok();
  }
  // Requests the next piece before the copy, so that its ticket comes during the copy.
  if (more) AskForNextPiece();
  const bool to_device = answer.response.direction == shm::Direction::kHostToDevice;
  copy.on_done = [self = shared_from_this(), ticket = answer.response](const absl::Status& done) {
    self->OnCopied(ticket, done);
  };
  owner_->device_
      ->copy_stream(to_device ? device::Direction::kHostToDevice : device::Direction::kDeviceToHost)
      .Submit(std::move(copy));
}

// This process knows where the bytes are too, and does not execute a ticket that disagrees.
absl::Status Transfers::Active::PrepareCopy(const TicketPart& piece, const shm::Response& ticket,
                                            device::Copy* copy) const {
  const bool to_device = ticket.direction == shm::Direction::kHostToDevice;
  const ChunkTable::Chunk* host_chunk =
      owner_->chunks_->Find(to_device ? spec_.source : spec_.destination);
  const uint64_t host_offset =
      (to_device ? spec_.source_offset : spec_.destination_offset) + piece.offset;
  const device::MemoryInfo memory = owner_->device_->memory_info();
  if (host_chunk == nullptr || host_chunk->home == nullptr || ticket.pool != host_chunk->pool ||
      ticket.bytes != piece.bytes || ticket.host_offset != host_chunk->pool_offset + host_offset ||
      ticket.completion_index >= shm::kCompletionWords ||
      ticket.device_offset > memory.imported_bytes ||
      ticket.bytes > memory.imported_bytes - ticket.device_offset) {
    absl::Status wrong = absl::InternalError(
        absl::StrCat(Describe(), ": the daemon's ticket does not match the request"));
    owner_->port_->Break(wrong);
    return wrong;
  }
  std::byte* const host = host_chunk->home + host_offset;
  std::byte* const device = owner_->device_->base() + ticket.device_offset;
  copy->destination = to_device ? device : host;
  copy->source = to_device ? host : device;
  copy->bytes = ticket.bytes;
  copy->completion = &owner_->client_->completion[ticket.completion_index];
  copy->completion_value = ticket.ticket;
  return absl::OkStatus();
}

void Transfers::Active::OnCopied(const shm::Response& ticket, const absl::Status& status) {
  if (status.ok()) {
    shm::Request done = MakeRequest(shm::RequestOp::kTransferDone);
    done.argument = ticket.ticket;
    owner_->port_->PostUrgent(done);
    owner_->CountCopy(ticket.direction, ticket.bytes);
  } else {
    // The protocol has no answer for a copy that fails, so a device that fails is lost.
    const absl::Status lost(status.code(), absl::StrCat("the device failed while ", Describe(),
                                                        ": ", status.message()));
    owner_->port_->Break(lost);
    Fail(lost);
  }
  EndPart(&parts_);
}

void Transfers::Active::Fail(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  if (error_.ok()) error_ = Explain(status, Describe(), owner_->device_->memory_info());
}

// When the last part of a kind ends, the transfer moves on.
void Transfers::Active::EndPart(int* parts) {
  {
    const std::lock_guard lock(mutex_);
    if (--*parts > 0) return;
    if (parts == &parts_ && error_.ok()) {
      final_steps_ = static_cast<int>(spec_.publish_when_done) + spec_.drop_source_when_done;
    }
  }
  if (parts == &parts_) {
    Conclude();
  } else {
    Complete();
  }
}

// The daemon does not answer the notice of a completed copy, so the final steps are requests of
// their own. The ring keeps the order.
void Transfers::Active::Conclude() {
  if (final_steps_ == 0) return Complete();
  if (spec_.publish_when_done) SendFinal(shm::RequestOp::kPublish, spec_.destination);
  if (spec_.drop_source_when_done) SendFinal(shm::RequestOp::kDrop, spec_.source);
}

void Transfers::Active::Complete() {
  outcome_->Complete(error_);
  const std::lock_guard lock(owner_->in_progress_.mutex);
  if (--owner_->in_progress_.count == 0) owner_->in_progress_.none.notify_all();
}

void Transfers::Active::SendFinal(shm::RequestOp op, ChunkId chunk) {
  owner_->port_->SubmitUrgent(MakeRequest(op, chunk),
                              [self = shared_from_this()](const Answer& answer) {
                                if (!answer.status.ok()) self->Fail(answer.status);
                                self->EndPart(&self->final_steps_);
                              });
}

void Transfers::Start(const TransferSpec& spec, std::shared_ptr<Pending::State> outcome,
                      OnRefusal on_refusal) {
  if (absl::Status status = Check(spec); !status.ok()) {
    outcome->Complete(std::move(status));
    return;
  }
  std::make_shared<Active>(this, spec, std::move(on_refusal), std::move(outcome))
      ->AskForNextPiece();
}

Pending Transfers::Start(const TransferSpec& spec) {
  const std::shared_ptr<Pending::State> outcome = NewOutcome();
  Start(spec, outcome);
  return Pending(outcome);
}

absl::Status Transfers::AwaitAll(absl::Duration timeout) const {
  const auto deadline = base::Deadline::In(timeout);
  std::unique_lock lock(in_progress_.mutex);
  if (in_progress_.none.wait_until(lock, deadline.time(),
                                   [this] { return in_progress_.count == 0; })) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(absl::StrCat(
      in_progress_.count, " copies are still in progress after ", absl::FormatDuration(timeout)));
}

absl::Status Transfers::Check(const TransferSpec& spec) const {
  const auto check = [&](const char* end, ChunkId id, uint64_t offset) {
    const ChunkTable::Chunk* chunk = chunks_->Find(id);
    if (chunk == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("the transfer's ", end, " is chunk ", Index(id), ", which does not exist"));
    }
    const uint64_t chunk_bytes = chunk->bytes.load(std::memory_order_relaxed);
    if (spec.bytes == 0 || offset > chunk_bytes || spec.bytes > chunk_bytes - offset) {
      return absl::OutOfRangeError(absl::StrCat("a transfer of ", spec.bytes, " bytes at offset ",
                                                offset, " of its ", end, ", chunk ", Index(id),
                                                " of ", chunk_bytes, " bytes"));
    }
    return absl::OkStatus();
  };
  absl::Status status = check("source", spec.source, spec.source_offset);
  status.Update(check("destination", spec.destination, spec.destination_offset));
  return status;
}

void Transfers::CountCopy(shm::Direction direction, uint64_t bytes) {
  const bool to_device = direction == shm::Direction::kHostToDevice;
  (to_device ? to_device_bytes_ : to_host_bytes_).fetch_add(bytes, std::memory_order_relaxed);
  copies_.fetch_add(1, std::memory_order_relaxed);
}

TransferTotals Transfers::totals() const {
  return {to_device_bytes_.load(), to_host_bytes_.load(), copies_.load()};
}

}  // namespace geminid
