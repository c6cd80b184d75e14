#include "training/scaling/spread_state.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

using collectives::Buffer;
using collectives::ConstBuffer;
using collectives::DType;

constexpr uint64_t kMessageBytes = uint64_t{4} << 20;

Buffer BytesIn(void* data, size_t bytes) { return {data, bytes, DType::kUint8}; }
ConstBuffer BytesOf(const void* data, size_t bytes) { return {data, bytes, DType::kUint8}; }

// The pieces that one message takes, from `first` on.
size_t EndOfMessage(const StateImage& image, const std::vector<StateImage::ArraySlice>& pieces,
                    size_t first, uint64_t* bytes) {
  size_t end = first;
  for (*bytes = 0; end < pieces.size(); ++end) {
    const uint64_t more = image.BytesOf(pieces[end]);
    if (*bytes > 0 && *bytes + more > kMessageBytes) break;
    *bytes += more;
  }
  return end;
}

}  // namespace

SpreadState::SpreadState(collectives::Communicator* communicator, const StateImage* image,
                         std::vector<size_t> host_by_rank)
    : communicator_(communicator), image_(image), host_by_rank_(std::move(host_by_rank)) {}

size_t SpreadState::host() const {
  return host_by_rank_[static_cast<size_t>(communicator_->Rank())];
}

bool SpreadState::leads_host() const {
  const auto rank = static_cast<size_t>(communicator_->Rank());
  return rank == 0 || host_by_rank_[rank - 1] != host_by_rank_[rank];
}

absl::StatusOr<RangesByRank> SpreadState::Gather(const std::vector<StateRange>& mine) const {
  const auto world = static_cast<size_t>(communicator_->WorldSize());
  const std::vector<int64_t> own = {static_cast<int64_t>(mine.size())};
  std::vector<int64_t> counts(world);
  GEMINID_RETURN_IF_ERROR(communicator_->AllGather(own, counts));
  const auto most = static_cast<size_t>(*std::ranges::max_element(counts));
  RangesByRank by_rank(world);
  if (most == 0) return by_rank;
  std::vector<StateRange> padded = mine, all(world * most);
  padded.resize(most);
  GEMINID_RETURN_IF_ERROR(
      communicator_->AllGather(BytesOf(padded.data(), most * sizeof(StateRange)),
                               BytesIn(all.data(), all.size() * sizeof(StateRange))));
  for (size_t rank = 0; rank < world; ++rank) {
    by_rank[rank].assign(&all[rank * most], &all[rank * most] + counts[rank]);
  }
  return by_rank;
}

// Message by message, of each the one that this rank sends and the one that it gets at once, so
// that no two ranks wait for each other.
absl::Status SpreadState::ExchangeWith(const std::vector<ArraySlice>& out, int to,
                                       const std::vector<ArraySlice>& in, int from,
                                       const Move& fill, const Move& drain, absl::Status* mine) {
  std::vector<std::byte> sent, got;
  for (size_t out_at = 0, in_at = 0; out_at < out.size() || in_at < in.size();) {
    uint64_t out_bytes = 0, in_bytes = 0;
    const size_t out_end = EndOfMessage(*image_, out, out_at, &out_bytes);
    const size_t in_end = EndOfMessage(*image_, in, in_at, &in_bytes);
    sent.resize(out_bytes);
    got.resize(in_bytes);
    uint64_t at = 0;
    for (; out_at < out_end; ++out_at) {
      const uint64_t bytes = image_->BytesOf(out[out_at]);
      mine->Update(fill(out[out_at], std::span(sent).subspan(at, bytes)));
      at += bytes;
    }
    const ConstBuffer outgoing = BytesOf(sent.data(), sent.size());
    const Buffer incoming = BytesIn(got.data(), got.size());
    if (out_bytes > 0 && in_bytes > 0) {
      GEMINID_RETURN_IF_ERROR(communicator_->SendReceive(outgoing, to, incoming, from));
    } else if (out_bytes > 0) {
      GEMINID_RETURN_IF_ERROR(communicator_->Send(outgoing, to));
    } else {
      GEMINID_RETURN_IF_ERROR(communicator_->Receive(incoming, from));
    }
    received_bytes_ += in_bytes;
    at = 0;
    for (; in_at < in_end; ++in_at) {
      const uint64_t bytes = image_->BytesOf(in[in_at]);
      mine->Update(drain(in[in_at], std::span(got).subspan(at, bytes)));
      at += bytes;
    }
  }
  return absl::OkStatus();
}

// An error of this rank's own does not hold up the others.
absl::Status SpreadState::Exchange(const std::vector<StateTransfer>& transfers, const Move& fill,
                                   const Move& drain) {
  const int rank = communicator_->Rank(), world = communicator_->WorldSize();
  const auto between = [&](int from, int to) {
    std::vector<StateRange> ranges;
    for (const StateTransfer& transfer : transfers) {
      if (transfer.from == from && transfer.to == to) ranges.push_back(transfer.range);
    }
    return image_->PiecesOf(ranges);
  };
  absl::Status mine;
  for (int shift = 1; shift < world; ++shift) {
    const int to = (rank + shift) % world, from = (rank + world - shift) % world;
    GEMINID_RETURN_IF_ERROR(
        ExchangeWith(between(rank, to), to, between(from, rank), from, fill, drain, &mine));
  }
  return mine;
}

// --- before other ranks --------------------------------------------------------------------------

absl::Status SpreadState::PlanToLeave(size_t hosts_after, uint64_t* number) {
  GEMINID_RETURN_IF_ERROR(communicator_->Broadcast(BytesIn(number, sizeof(*number)), 0));
  GEMINID_ASSIGN_OR_RETURN(const RangesByRank shards, Gather(image_->Shards()));
  leaving_ = trainer::PlanToLeave(shards, host_by_rank_, hosts_after);
  return absl::OkStatus();
}

const std::vector<StateRange>* SpreadState::here() const {
  return host() < leaving_->by_host.size() ? &leaving_->by_host[host()] : nullptr;
}

absl::Status SpreadState::Leave(std::span<std::byte> image) {
  const absl::Status written = here() != nullptr ? image_->Write(image) : absl::OkStatus();
  const absl::Status exchanged = Exchange(
      leaving_->transfers,
      [&](const ArraySlice& piece, std::span<std::byte> bytes) {
        return image_->Load(piece, bytes);
      },
      [&](const ArraySlice& piece, std::span<std::byte> bytes) {
        std::ranges::copy(bytes, image_->In(image, piece).begin());
        return absl::OkStatus();
      });
  return written.ok() ? exchanged : written;
}

// --- after them ----------------------------------------------------------------------------------

// The first host's image has it.
absl::StatusOr<RunPosition> SpreadState::TakePosition(std::span<std::byte> image) const {
  std::vector<std::byte> words(image_->position_bytes());
  if (communicator_->Rank() == 0) {
    std::copy_n(image.begin(), std::min(words.size(), image.size()), words.begin());
  }
  GEMINID_RETURN_IF_ERROR(communicator_->Broadcast(BytesIn(words.data(), words.size()), 0));
  return image_->ReadPosition(words);
}

absl::StatusOr<RunPosition> SpreadState::Take(std::span<std::byte> image) {
  const absl::StatusOr<RunPosition> position = TakePosition(image);
  const absl::StatusOr<std::vector<StateRange>> table = image_->ReadTable(image);
  const std::vector<StateRange> none, have = table.value_or(none);
  const std::vector<StateRange> shards = image_->Shards();
  GEMINID_ASSIGN_OR_RETURN(RangesByRank tables, Gather(leads_host() ? have : none));
  GEMINID_ASSIGN_OR_RETURN(const RangesByRank wanted, Gather(shards));
  RangesByRank by_host(host_by_rank_.back() + 1);
  for (size_t rank = 0; rank < tables.size(); ++rank) {
    if (!tables[rank].empty()) by_host[host_by_rank_[rank]] = std::move(tables[rank]);
  }
  const auto transfers = PlanToTake(wanted, host_by_rank_, by_host);
  GEMINID_RETURN_IF_ERROR(position.status());
  GEMINID_RETURN_IF_ERROR(table.status());
  GEMINID_RETURN_IF_ERROR(transfers.status());  // of all ranks alike
  GEMINID_RETURN_IF_ERROR(Exchange(
      *transfers,
      [&](const ArraySlice& piece, std::span<std::byte> bytes) {
        std::ranges::copy(image_->In(image, piece), bytes.begin());
        return absl::OkStatus();
      },
      [&](const ArraySlice& piece, std::span<std::byte> bytes) {
        return image_->Store(piece, bytes);
      }));
  for (const ArraySlice& piece : image_->PiecesOf(RangeSet(have).Common(shards))) {
    GEMINID_RETURN_IF_ERROR(image_->Store(piece, image_->In(image, piece)));
  }
  return *position;
}

}  // namespace geminid::trainer
