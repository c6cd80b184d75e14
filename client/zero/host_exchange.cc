#include "client/zero/host_exchange.h"

#include <array>
#include <vector>

#include "base/status_macros.h"

namespace geminid::zero {

HostExchange::~HostExchange() {
  if (storage_.id == kNoChunk || given_up_) return;
  session_->Free(std::array{storage_.id}).IgnoreError();
}

absl::Status HostExchange::AllGather(const Exchanged& chunk) {
  GEMINID_ASSIGN_OR_RETURN(std::byte* const here, Storage(chunk.bytes()));
  const Slice own = OwnSlice(chunk);
  Copy(here, chunk.data, own);
  GEMINID_RETURN_IF_ERROR(Finish());
  const uint64_t slice = chunk.elements / static_cast<uint64_t>(communicator_->WorldSize());
  GEMINID_RETURN_IF_ERROR(communicator_->AllGather({here + own.begin, slice, chunk.type},
                                                   {here, chunk.elements, chunk.type}));
  Copy(chunk.data, here, {0, own.begin});
  Copy(chunk.data, here, {own.end, chunk.bytes()});
  return Finish();
}

absl::Status HostExchange::Average(const Exchanged& chunk) {
  GEMINID_ASSIGN_OR_RETURN(std::byte* const here, Storage(chunk.bytes()));
  const Slice own = OwnSlice(chunk);
  Copy(here, chunk.data, {0, chunk.bytes()});
  GEMINID_RETURN_IF_ERROR(Finish());
  const int world_size = communicator_->WorldSize();
  const uint64_t slice = chunk.elements / static_cast<uint64_t>(world_size);
  GEMINID_RETURN_IF_ERROR(communicator_->ReduceScatter(
      {here, chunk.elements, chunk.type}, {here + own.begin, slice, chunk.type},
      collectives::ReduceOp::kSum, {1.0 / world_size}));
  Copy(chunk.data, here, own);
  return Finish();
}

absl::StatusOr<std::byte*> HostExchange::Storage(uint64_t bytes) {
  if (storage_.bytes >= bytes) return storage_.home;
  if (storage_.id != kNoChunk) {
    GEMINID_RETURN_IF_ERROR(session_->Free(std::array{storage_.id}));
    storage_ = {};
  }
  GEMINID_ASSIGN_OR_RETURN(
      const std::vector<ChunkHandle> handles,
      session_->Allocate({{"exchange between ranks", ChunkKind::kGeneric, bytes}}));
  storage_ = handles.front();
  return storage_.home;
}

HostExchange::Slice HostExchange::OwnSlice(const Exchanged& chunk) const {
  const uint64_t bytes = chunk.bytes() / static_cast<uint64_t>(communicator_->WorldSize());
  const uint64_t begin = static_cast<uint64_t>(communicator_->Rank()) * bytes;
  return {begin, begin + bytes};
}

void HostExchange::Copy(std::byte* to, const std::byte* from, Slice slice) {
  if (slice.begin == slice.end) return;
  place_.ops->Copy(*place_.stream, to + slice.begin, from + slice.begin, slice.end - slice.begin);
}

absl::Status HostExchange::Finish() {
  absl::Status status = place_.Finish();
  given_up_ = given_up_ || !status.ok();
  return status;
}

}  // namespace geminid::zero
