#include "client/zero/ranks/host_exchange.h"

#include <array>
#include <vector>

#include "base/status_macros.h"

namespace geminid::zero {

HostExchange::~HostExchange() {
  if (storage_.id == kNoChunk || given_up_) return;
  session_->Free(std::array{storage_.id}).IgnoreError();
}

absl::Status HostExchange::AllGather(const ExchangedChunk& chunk) {
  GEMINID_ASSIGN_OR_RETURN(std::byte* const here, Storage());
  const Slice own = OwnSlice(chunk);
  GEMINID_RETURN_IF_ERROR(Down(chunk, own));
  const uint64_t slice = chunk.elements / static_cast<uint64_t>(communicator_->WorldSize());
  GEMINID_RETURN_IF_ERROR(communicator_->AllGather({here + own.begin, slice, chunk.type},
                                                   {here, chunk.elements, chunk.type}));
  GEMINID_RETURN_IF_ERROR(Up(chunk, {0, own.begin}));
  return Up(chunk, {own.end, chunk.bytes()});
}

absl::Status HostExchange::Average(const ExchangedChunk& chunk) {
  GEMINID_ASSIGN_OR_RETURN(std::byte* const here, Storage());
  const Slice own = OwnSlice(chunk);
  GEMINID_RETURN_IF_ERROR(Down(chunk, {0, chunk.bytes()}));
  const int world_size = communicator_->WorldSize();
  const uint64_t slice = chunk.elements / static_cast<uint64_t>(world_size);
  GEMINID_RETURN_IF_ERROR(communicator_->ReduceScatter(
      {here, chunk.elements, chunk.type}, {here + own.begin, slice, chunk.type},
      collectives::ReduceOp::kSum, {1.0 / world_size}));
  place_.ops->Copy(*place_.stream, chunk.data + own.begin, here + own.begin, own.end - own.begin);
  return Noted(place_.Finish());
}

absl::StatusOr<std::byte*> HostExchange::Storage() {
  if (storage_.id != kNoChunk) return storage_.home;
  GEMINID_ASSIGN_OR_RETURN(
      const std::vector<ChunkHandle> handles,
      session_->Allocate({{"exchange between ranks", ChunkKind::kGeneric, largest_bytes_}}));
  storage_ = handles.front();
  return storage_.home;
}

HostExchange::Slice HostExchange::OwnSlice(const ExchangedChunk& chunk) const {
  const uint64_t bytes = chunk.bytes() / static_cast<uint64_t>(communicator_->WorldSize());
  const uint64_t begin = static_cast<uint64_t>(communicator_->Rank()) * bytes;
  return {begin, begin + bytes};
}

absl::Status HostExchange::Down(const ExchangedChunk& chunk, Slice slice) {
  GEMINID_RETURN_IF_ERROR(Noted(place_.Finish()));  // waits for operations queued on the extent
  return Move({.source = chunk.chunk,
               .destination = storage_.id,
               .priority = Priority::kUrgent,
               .cause = TransferCause::kWriteBack},
              slice);
}

absl::Status HostExchange::Up(const ExchangedChunk& chunk, Slice slice) {
  return Move({.source = storage_.id,
               .destination = chunk.chunk,
               .priority = Priority::kUrgent,
               .cause = TransferCause::kDemand},
              slice);
}

absl::Status HostExchange::Move(TransferSpec spec, Slice slice) {
  if (slice.begin == slice.end) return absl::OkStatus();
  spec.source_offset = spec.destination_offset = slice.begin;
  spec.bytes = slice.end - slice.begin;
  return Noted(session_->Transfer(spec).Wait(place_.timeout));
}

absl::Status HostExchange::Noted(absl::Status status) {
  given_up_ = given_up_ || !status.ok();
  return status;
}

}  // namespace geminid::zero
