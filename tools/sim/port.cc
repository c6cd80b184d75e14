#include "tools/sim/port.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace geminid::sim {

using core::ChunkId;
using core::Direction;

namespace {

// The client cuts its copies in the same way, so that an urgent one waits for few of these.
constexpr uint64_t kMaxPieceBytes = uint64_t{16} << 20;

}  // namespace

shm::Request Port::MakeRequest(shm::RequestOp op) {
  shm::Request request{};
  request.request_id = next_request_++;
  request.op = op;
  request.cause = core::TransferCause::kDemand;
  request.deadline_moment = core::kNoDeadline;
  request.source = shm::kNoChunk;
  request.destination = shm::kNoChunk;
  return request;
}

void Port::Receive(const core::Outgoing& outgoing) {
  const shm::Response& response = outgoing.response;
  if (response.op == shm::ResponseOp::kError) {
    process_->Fail(absl::InternalError(
        absl::StrCat("the daemon refused a request of rank ", process_->rank(), " at ",
                     (process_->now() - core::Time()).seconds(), " s: ", outgoing.error)));
    return;
  }
  const auto answer = answers_.find(response.request_id);
  if (answer == answers_.end()) return;
  const std::function<void(const shm::Response&)> call = std::move(answer->second);
  answers_.erase(answer);
  call(response);
}

void Port::Ask(shm::RequestOp op, ChunkId chunk, uint64_t argument, std::function<void()> done) {
  shm::Request request = MakeRequest(op);
  request.destination = chunk;
  request.argument = argument;
  if (done == nullptr) {
    request.flags = shm::kNoReply;
  } else {
    answers_[request.request_id] = [done = std::move(done)](const shm::Response&) { done(); };
  }
  daemon_->Send(session_, request);
}

void Port::Reserve(uint64_t bytes, std::function<void()> done) {
  shm::Request request = MakeRequest(shm::RequestOp::kReserveWorkspace);
  request.bytes = bytes;
  if (done == nullptr) {
    request.flags = shm::kNoReply;
  } else {
    answers_[request.request_id] = [done = std::move(done)](const shm::Response&) { done(); };
  }
  daemon_->Send(session_, request);
}

bool Port::Lease(ChunkId chunk) {
  const shm::StateWord state = daemon_->State(session_, chunk);
  if (state.residency != shm::Residency::kResident) return false;
  daemon_->WriteLease(session_, chunk,
                      shm::LeaseWord{.generation = state.generation, .count = 1}.Encode());
  return true;
}

void Port::Copy(CopySpec spec, std::function<void()> done) {
  AskForNextPiece(std::make_shared<ActiveCopy>(ActiveCopy{std::move(spec), 0, 0, std::move(done)}));
}

void Port::AskForNextPiece(const std::shared_ptr<ActiveCopy>& copy) {
  const CopySpec& spec = copy->spec;
  shm::Request request = MakeRequest(shm::RequestOp::kTransfer);
  request.priority = spec.priority;
  request.cause = spec.cause;
  request.source = spec.source;
  request.destination = spec.destination;
  request.source_offset = spec.source_offset + copy->asked_bytes;
  request.destination_offset = spec.destination_offset + copy->asked_bytes;
  request.bytes = std::min(spec.bytes - copy->asked_bytes, kMaxPieceBytes);
  if (spec.device_offset.has_value()) {
    request.flags = shm::kAllocateDestination;
    request.device_offset = *spec.device_offset;
  }
  copy->asked_bytes += request.bytes;
  ++copy->parts;
  answers_[request.request_id] = [this, copy](const shm::Response& ticket) {
    OnTicket(copy, ticket);
  };
  daemon_->Send(session_, request);
}

void Port::OnTicket(const std::shared_ptr<ActiveCopy>& copy, const shm::Response& ticket) {
  if (copy->asked_bytes < copy->spec.bytes) AskForNextPiece(copy);
  streams_[static_cast<size_t>(core::Index(ticket.direction))].queue.push_back({copy, ticket});
  RunStream(ticket.direction);
}

// The link carries one copy after another; each arrives a latency after its last byte has left.
void Port::RunStream(Direction direction) {
  Stream& stream = streams_[static_cast<size_t>(core::Index(direction))];
  if (stream.busy || stream.queue.empty()) return;
  stream.busy = true;
  const Piece piece = std::move(stream.queue.front());
  stream.queue.pop_front();
  const bool up = direction == Direction::kHostToDevice;
  const Machine& machine = process_->machine();
  const double bytes = static_cast<double>(piece.ticket.bytes);
  const double link = bytes / (up ? machine.up_bytes_per_second : machine.down_bytes_per_second);
  std::vector<ResourceDemand> demands;
  AddDemands(up ? process_->shared().up : process_->shared().down, bytes / link, &demands);
  AddDemands(process_->shared().host, bytes / link, &demands);
  process_->Work(up ? Track::kUp : Track::kDown, piece.copy->spec.name, link, std::move(demands),
                 [this, direction, piece] {
                   streams_[static_cast<size_t>(core::Index(direction))].busy = false;
                   process_->After(process_->machine().link_latency_seconds,
                                   [this, piece] { OnCopied(piece); });
                   RunStream(direction);
                 });
}

void Port::OnCopied(const Piece& piece) {
  daemon_->WriteCompletion(session_, piece.ticket.completion_index, piece.ticket.ticket);
  shm::Request done = MakeRequest(shm::RequestOp::kTransferDone);
  done.argument = piece.ticket.ticket;
  daemon_->Send(session_, done);
  const bool up = piece.ticket.direction == Direction::kHostToDevice;
  process_->observer().AddBytes(process_->rank(), up ? Track::kUp : Track::kDown,
                                piece.ticket.bytes);
  if (--piece.copy->parts == 0) piece.copy->done();
}

}  // namespace geminid::sim
