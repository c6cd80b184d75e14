#include "collectives/shm/shm_communicator.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/hash.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "collectives/communicator_backend.h"
#include "collectives/failure.h"
#include "collectives/reduce.h"
#include "collectives/shm/rendezvous.h"
#include "collectives/shm/shm_group.h"
#include "collectives/shm/shm_messages.h"
#include "collectives/shm/streaming_copy.h"
#include "collectives/shm/survival.h"

namespace geminid::collectives {
namespace {

constexpr int kAllRanks = -1;

// The length of the piece of `total` at `begin`, limited to `limit`.
size_t PieceLength(size_t total, size_t begin, size_t limit) {
  return begin >= total ? 0 : std::min(limit, total - begin);
}

uint32_t PiecesOf(size_t total, size_t limit) {
  return static_cast<uint32_t>(std::max<size_t>(1, (total + limit - 1) / limit));
}

// Collectives run in rounds, which are numbered over the life of the communicator. In a round each
// rank puts a piece in its slot and publishes it, waits for the peers' pieces, reads them, and
// marks the round as consumed. A slot is reused when all ranks have consumed its round. So a rank
// runs ahead of the slowest rank by at most as many rounds as there are slots.
class ShmBackend final : public CommunicatorBackend {
 public:
  ShmBackend(std::string name, const ShmOptions& options, Segment segment,
             std::shared_ptr<void> entry, std::vector<base::UniqueFd> processes, int rank,
             int world_size)
      : CommunicatorBackend(rank, world_size, options.timeout),
        name_(std::move(name)),
        options_(options),
        entry_(std::move(entry)),
        group_(std::move(segment), std::move(processes), rank, options.spin_limit,
               options.first_rank),
        segment_(group_.segment()),
        piece_bytes_(segment_.shape().piece_bytes),
        slots_(segment_.shape().slots) {}

  const char* BackendName() const override { return "shm"; }
  SegmentBooks* Books() const override { return options_.books.get(); }

 protected:
  absl::Status DoAllGather(const Operation& operation, const std::byte* in, std::byte* out,
                           const Partition& parts) override {
    const size_t width = SizeOf(operation.dtype);
    const size_t own_bytes = parts.Count(Rank()) * width;
    std::byte* own_out = out + parts.Begin(Rank()) * width;
    const bool streams = parts.total() * width >= kStreamedBytes;
    auto fill = [&](uint32_t piece, std::byte* slot) {
      const size_t begin = piece * piece_bytes_;
      const size_t length = PieceLength(own_bytes, begin, piece_bytes_);
      Copy(slot, in + begin, length);
      if (in != own_out) Copy(own_out + begin, in + begin, length);
      for (int r = 0; r < WorldSize(); ++r) {
        if (r != Rank()) CountSent(r, length);
      }
    };
    auto take = [&](uint32_t piece, uint32_t slot) {
      const size_t begin = piece * piece_bytes_;
      for (int step = 1; step < WorldSize(); ++step) {
        const int r = (Rank() + step) % WorldSize();  // so that they read different peers first
        const size_t length = PieceLength(parts.Count(r) * width, begin, piece_bytes_);
        std::byte* const to = out + parts.Begin(r) * width + begin;
        (streams ? StreamingCopy : Copy)(to, segment_.staging(r, slot), length);
        CountReceived(r, length);
      }
    };
    return RunRounds(operation, PiecesOf(parts.MaxCount() * width, piece_bytes_), kAllRanks, fill,
                     take);
  }

  absl::Status DoReduceScatter(const Operation& operation, const std::byte* in, std::byte* out,
                               const Partition& parts) override {
    const size_t width = SizeOf(operation.dtype);
    const size_t share = ShareBytes();
    std::vector<const std::byte*> inputs(static_cast<size_t>(WorldSize()));
    auto fill = [&](uint32_t piece, std::byte* slot) { FillShares(piece, slot, in, parts, width); };
    auto take = [&](uint32_t piece, uint32_t slot) {
      const size_t begin = piece * share;
      const size_t length = PieceLength(parts.Count(Rank()) * width, begin, share);
      for (int r = 0; r < WorldSize(); ++r) {
        const bool own = r == Rank();
        inputs[static_cast<size_t>(r)] =
            own ? in + parts.Begin(r) * width + begin
                : segment_.staging(r, slot) + static_cast<size_t>(Rank()) * share;
        if (!own) CountReceived(r, length);
      }
      if (length == 0) return;
      ReduceInOrder(inputs, out + begin, length / width, operation.dtype, operation.reduce,
                    operation.scale);
    };
    return RunRounds(operation, PiecesOf(parts.MaxCount() * width, share), kAllRanks, fill, take);
  }

  absl::Status DoAllToAll(const Operation& operation, const std::byte* in,
                          std::byte* out) override {
    const size_t width = SizeOf(operation.dtype);
    const size_t share = ShareBytes();
    const Partition parts(operation.count * static_cast<size_t>(WorldSize()), WorldSize());
    const size_t bytes = operation.count * width;
    const size_t own_offset = static_cast<size_t>(Rank()) * bytes;
    Copy(out + own_offset, in + own_offset, bytes);
    auto fill = [&](uint32_t piece, std::byte* slot) { FillShares(piece, slot, in, parts, width); };
    auto take = [&](uint32_t piece, uint32_t slot) {
      const size_t begin = piece * share;
      const size_t length = PieceLength(bytes, begin, share);
      for (int step = 1; step < WorldSize(); ++step) {
        const int r = (Rank() + step) % WorldSize();
        Copy(out + static_cast<size_t>(r) * bytes + begin,
             segment_.staging(r, slot) + static_cast<size_t>(Rank()) * share, length);
        CountReceived(r, length);
      }
    };
    return RunRounds(operation, PiecesOf(bytes, share), kAllRanks, fill, take);
  }

  absl::Status DoBroadcast(const Operation& operation, std::byte* inout) override {
    const size_t bytes = operation.count * SizeOf(operation.dtype);
    const int root = operation.root_or_tag;
    auto fill = [&](uint32_t piece, std::byte* slot) {
      if (Rank() != root) return;
      const size_t begin = piece * piece_bytes_;
      const size_t length = PieceLength(bytes, begin, piece_bytes_);
      Copy(slot, inout + begin, length);
      for (int r = 0; r < WorldSize(); ++r) {
        if (r != Rank()) CountSent(r, length);
      }
    };
    auto take = [&](uint32_t piece, uint32_t slot) {
      if (Rank() == root) return;
      const size_t begin = piece * piece_bytes_;
      const size_t length = PieceLength(bytes, begin, piece_bytes_);
      Copy(inout + begin, segment_.staging(root, slot), length);
      CountReceived(root, length);
    };
    return RunRounds(operation, PiecesOf(bytes, piece_bytes_), root, fill, take);
  }

  absl::Status DoBarrier(const Operation& operation) override {
    return RunRounds(
        operation, 1, kAllRanks, [](uint32_t, std::byte*) {}, [](uint32_t, uint32_t) {});
  }

  absl::Status DoSendReceive(const Message* send, const Message* receive) override;

  void DoAbort(const absl::Status& status) override { (void)group_.Fail(status); }
  absl::Status DoCheckHealth() const override { return group_.failure(); }
  absl::Status DoDetectDeadRanks() override { return group_.DetectDeadRanks(); }

  absl::StatusOr<Survivors> DoShrink() override {
    return ShrinkShm(group_, name_, options_, timeout(), &attempt_);
  }

  absl::StatusOr<std::unique_ptr<Communicator>> DoSubset(const std::string& key,
                                                         std::span<const int> ranks,
                                                         Messages messages) override {
    const auto own = std::find(ranks.begin(), ranks.end(), Rank());
    ShmOptions options = options_;
    if (messages == Messages::kSmall) options.UseLittleMemory(ranks.size());
    options.first_rank = 0;
    options.look = [this] { return group_.failure(); };  // a failed rank does not come
    return ConnectShm(absl::StrCat(name_, "/", key), static_cast<int>(own - ranks.begin()),
                      static_cast<int>(ranks.size()), options);
  }

 private:
  // `source` is the only rank that publishes pieces, or kAllRanks. fill(piece, slot address) fills
  // this rank's slot; take(piece, slot number) runs when the sources' slots are filled.
  template <class Fill, class Take>
  absl::Status RunRounds(const Operation& operation, uint32_t rounds, int source, Fill fill,
                         Take take);

  // A counter passes `value` by less than half its range, so the signed difference shows the order.
  static bool Reached(const Counter& counter, uint32_t value) {
    const uint32_t now = counter.value.load(std::memory_order_acquire);
    return static_cast<int32_t>(now - value) >= 0;
  }

  // The ranks whose counter has not reached `value`. Checks only `source`, unless it is kAllRanks.
  std::vector<int> Behind(Counter RankControl::*counter, uint32_t value, int source) const {
    std::vector<int> behind;
    for (int r = 0; r < WorldSize(); ++r) {
      if (source != kAllRanks && r != source) continue;
      if (!Reached(segment_.control(r).*counter, value)) behind.push_back(r);
    }
    return behind;
  }

  bool SlotIsFree(uint32_t freed) const {
    for (int r = 0; r < WorldSize(); ++r) {
      if (!Reached(segment_.control(r).consumed, freed)) return false;
    }
    return true;
  }

  absl::Status AwaitAll(const ShmGroup::Context& context, Counter RankControl::*counter,
                        uint32_t value, int source) {
    for (int r = 0; r < WorldSize(); ++r) {
      if (source != kAllRanks && r != source) continue;
      Counter& awaited = segment_.control(r).*counter;
      absl::Status status = group_.Await(
          context, awaited, [&] { return Reached(awaited, value); },
          [&] { return Behind(counter, value, source); });
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status CheckLabels(const Operation& operation, uint32_t slot, int source) {
    for (int r = 0; r < WorldSize(); ++r) {
      if (source != kAllRanks && r != source) continue;
      const Label other = segment_.label(r, slot);
      if (!(other.operation == operation)) {
        return group_.Fail(
            MismatchError(group_.NameOf(Rank()), operation, group_.NameOf(r), other.operation));
      }
      if (other.broadcasts != broadcasts_.value()) {
        return group_.Fail(MismatchError(group_.NameOf(Rank()), last_broadcast_, group_.NameOf(r),
                                         other.last_broadcast));
      }
    }
    return absl::OkStatus();
  }

  void NoteBroadcast(const Operation& operation) {
    last_broadcast_ = operation;
    broadcasts_.Add(static_cast<uint64_t>(operation.dtype));
    broadcasts_.AddSigned(operation.root_or_tag);
    broadcasts_.Add(operation.count);
    broadcasts_.AddText(std::string(operation.label.data(), operation.label.size()));
  }

  // The bytes of a slot for each receiving rank.
  size_t ShareBytes() const {
    constexpr size_t kAlignment = 64;  // a cache line, and a multiple of every element size
    return piece_bytes_ / static_cast<size_t>(WorldSize()) / kAlignment * kAlignment;
  }

  void FillShares(uint32_t piece, std::byte* slot, const std::byte* in, const Partition& parts,
                  size_t width) {
    const size_t share = ShareBytes();
    const size_t begin = piece * share;
    for (int r = 0; r < WorldSize(); ++r) {
      if (r == Rank()) continue;
      const size_t length = PieceLength(parts.Count(r) * width, begin, share);
      Copy(slot + static_cast<size_t>(r) * share, in + parts.Begin(r) * width + begin, length);
      CountSent(r, length);
    }
  }

  static void Copy(std::byte* to, const std::byte* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  const std::string name_;
  const ShmOptions options_;
  const std::shared_ptr<void> entry_;  // of the memory in the books, if this rank allocated it
  ShmGroup group_;
  const Segment& segment_;
  const size_t piece_bytes_;
  const uint32_t slots_;
  Operation last_broadcast_{};
  base::Fnv1a broadcasts_;  // all of them so far
  uint32_t round_ = 0;      // the next one
  uint32_t attempt_ = 0;    // of Shrink()
};

template <class Fill, class Take>
absl::Status ShmBackend::RunRounds(const Operation& operation, uint32_t rounds, int source,
                                   Fill fill, Take take) {
  const ShmGroup::Context context{operation, timeout(), base::Deadline::In(timeout())};
  RankControl& own = segment_.control(Rank());
  uint32_t filled = 0;
  for (uint32_t taken = 0; taken < rounds; ++taken) {
    // Runs ahead while slots are free, but waits for one only if this very round needs it.
    while (filled < rounds && filled - taken < slots_) {
      const uint32_t round = round_ + filled;
      const uint32_t freed = round + 1 - slots_;
      if (filled > taken && !SlotIsFree(freed)) break;
      GEMINID_RETURN_IF_ERROR(AwaitAll(context, &RankControl::consumed, freed, kAllRanks));
      if (filled == 0) {
        segment_.label(Rank(), round % slots_) = {operation, last_broadcast_, broadcasts_.value()};
      }
      fill(filled, segment_.staging(Rank(), round % slots_));
      own.published.Set(round + 1);
      ++filled;
    }
    const uint32_t round = round_ + taken;
    absl::Status status = AwaitAll(context, &RankControl::published, round + 1, source);
    if (status.ok() && taken == 0) status = CheckLabels(operation, round % slots_, source);
    if (!status.ok()) return status;
    take(taken, round % slots_);
    own.consumed.Set(round + 1);
  }
  round_ += rounds;
  if (source != kAllRanks) NoteBroadcast(operation);
  return absl::OkStatus();
}

absl::Status ShmBackend::DoSendReceive(const Message* send, const Message* receive) {
  const Operation& operation = send != nullptr ? send->operation : receive->operation;
  const ShmGroup::Context context{operation, timeout(), base::Deadline::In(timeout())};
  std::optional<MessageSender> sender;
  std::optional<MessageReceiver> receiver;
  if (send != nullptr) sender.emplace(&group_, send->peer, send->operation, send->in);
  if (receive != nullptr) {
    receiver.emplace(&group_, receive->peer, receive->operation, receive->out);
  }
  absl::Status mismatch;
  // Moves all that can be moved now; true when nothing is left to move.
  auto ready = [&] {
    while ((sender && sender->Step()) || (receiver && receiver->Step(&mismatch))) {
    }
    return !mismatch.ok() || ((!sender || sender->done()) && (!receiver || receiver->done()));
  };
  auto absent = [&] {
    std::vector<int> missing;
    if (sender && !sender->done()) missing.push_back(sender->peer());
    if (receiver && !receiver->done()) missing.push_back(receiver->peer());
    return missing;
  };
  Counter& doorbell = segment_.control(Rank()).doorbell;
  GEMINID_RETURN_IF_ERROR(group_.Await(context, doorbell, ready, absent));
  if (!mismatch.ok()) return group_.Fail(mismatch);
  if (send != nullptr) CountSent(send->peer, send->bytes());
  if (receive != nullptr) CountReceived(receive->peer, receive->bytes());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> ConnectShm(const std::string& name, int rank,
                                                         int world_size,
                                                         const ShmOptions& options) {
  GEMINID_ASSIGN_OR_RETURN(auto backend, ConnectShmBackend(name, rank, world_size, options));
  return std::make_unique<Communicator>(std::move(backend));
}

// A piece has 64 bytes for each rank.
void ShmOptions::UseLittleMemory(size_t ranks) {
  piece_bytes = static_cast<uint32_t>(base::RoundUpToPage(64 * ranks));
  message_bytes = base::kPageBytes;
}

absl::StatusOr<std::unique_ptr<CommunicatorBackend>> ConnectShmBackend(const std::string& name,
                                                                       int rank, int world_size,
                                                                       const ShmOptions& options) {
  if (world_size < 1 || world_size > kMaxShmRanks || rank < 0 || rank >= world_size) {
    return absl::InvalidArgumentError(absl::StrCat("shm communicator: rank ", rank, " of ",
                                                   world_size, "; at most ", kMaxShmRanks,
                                                   " ranks share a host"));
  }
  ShmOptions kept = options;
  kept.look = nullptr;  // only for this wait
  if (kept.books == nullptr) kept.books = std::make_shared<SegmentBooks>();
  std::optional<Segment> segment;
  std::shared_ptr<void> entry;
  const auto make = [&]() -> absl::StatusOr<int> {
    const SegmentShape shape = {.world_size = static_cast<uint32_t>(world_size),
                                .slots = options.slots,
                                .piece_bytes = options.piece_bytes,
                                .message_bytes = options.message_bytes};
    GEMINID_ASSIGN_OR_RETURN(entry, kept.books->Enter(name, SegmentLayout::Of(shape).end));
    GEMINID_ASSIGN_OR_RETURN(segment, Segment::Create(shape));
    return segment->fd();
  };
  const absl::StatusOr<int> made = rank == 0 ? make() : -1;
  GEMINID_ASSIGN_OR_RETURN(
      RendezvousResult meeting,
      MeetOnHost(name, rank, world_size, made, options.connect_timeout, options.look));
  if (!segment) {
    GEMINID_ASSIGN_OR_RETURN(segment, Segment::Open(std::move(meeting.segment), world_size));
  }
  return std::make_unique<ShmBackend>(name, kept, *std::move(segment), std::move(entry),
                                      std::move(meeting.processes), rank, world_size);
}

}  // namespace geminid::collectives
