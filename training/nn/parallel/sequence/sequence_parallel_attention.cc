#include "training/nn/parallel/sequence/sequence_parallel_attention.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "training/nn/parallel/sequence/ulysses_exchange.h"

namespace geminid::collectives {
namespace {

using kernels::AttentionShape;

class RingSequenceAttention final : public SequenceParallelAttention {
 public:
  explicit RingSequenceAttention(RingRanks& ranks) : ranks_(ranks) {}

  absl::Status Forward(const LayerPlace& place, const AttentionShape& mine,
                       std::span<const float> q, std::span<const float> k, std::span<const float> v,
                       std::span<float> out, std::span<float> lse) override {
    GEMINID_ASSIGN_OR_RETURN(RingAttention ring, RingOf(mine));
    return ring.Forward(place, q, k, v, out, lse);
  }

  absl::Status Backward(const LayerPlace& place, const AttentionShape& mine, const Saved& saved,
                        std::span<const float> dout, std::span<float> dq, std::span<float> dk,
                        std::span<float> dv) override {
    GEMINID_ASSIGN_OR_RETURN(RingAttention ring, RingOf(mine));
    return ring.Backward(place, saved, dout, dq, dk, dv);
  }

  void Abort(const std::string& reason) override { ranks_.Abort(reason); }

 private:
  absl::StatusOr<RingAttention> RingOf(const AttentionShape& mine) {
    const RingShape whole = {.batch = mine.batch,
                             .sequence = mine.sequence * static_cast<size_t>(ranks_.WorldSize()),
                             .heads = mine.heads,
                             .kv_heads = mine.kv_heads,
                             .head_dim = mine.head_dim,
                             .scale = mine.scale};
    return RingAttention::Make(whole, ranks_);
  }

  RingRanks& ranks_;
};

// Tensors of whole sequences, with a rank's share of the heads.
enum Part { kQ, kK, kV, kOut, kOutGradient, kQGradient, kKGradient, kVGradient, kParts };
constexpr int kForwardParts = kOut + 1;

constexpr bool IsOfQueries(int part) {
  return part == kQ || part == kOut || part == kOutGradient || part == kQGradient;
}

AttentionShape WholeOf(const AttentionShape& mine, size_t ranks) {
  AttentionShape whole = mine;
  whole.sequence *= ranks;
  whole.heads /= ranks;
  whole.kv_heads /= ranks;
  return whole;
}

class UlyssesSequenceAttention final : public SequenceParallelAttention {
 public:
  UlyssesSequenceAttention(Communicator& ranks, Memory* host) : swap_(&ranks), host_(host) {}

  absl::Status Forward(const LayerPlace& place, const AttentionShape& mine,
                       std::span<const float> q, std::span<const float> k, std::span<const float> v,
                       std::span<float> out, std::span<float> lse) override {
    GEMINID_RETURN_IF_ERROR(Check(mine));
    GEMINID_ASSIGN_OR_RETURN(const Parts parts, Take(place.memory, mine, kForwardParts));
    GEMINID_RETURN_IF_ERROR(ToHeads(place, mine, parts, kQ, q));
    GEMINID_RETURN_IF_ERROR(ToHeads(place, mine, parts, kK, k));
    GEMINID_RETURN_IF_ERROR(ToHeads(place, mine, parts, kV, v));
    GEMINID_RETURN_IF_ERROR(TellIfRefused(swap_, Attend(place, mine, parts, lse)));
    return ToSlices(place, mine, parts, kOut, out);
  }

  absl::Status Backward(const LayerPlace& place, const AttentionShape& mine, const Saved& saved,
                        std::span<const float> dout, std::span<float> dq, std::span<float> dk,
                        std::span<float> dv) override {
    GEMINID_RETURN_IF_ERROR(Check(mine));
    GEMINID_ASSIGN_OR_RETURN(const Parts parts, Take(place.memory, mine, kParts));
    GEMINID_RETURN_IF_ERROR(ToHeads(place, mine, parts, kQ, saved.q));
    GEMINID_RETURN_IF_ERROR(ToHeads(place, mine, parts, kK, saved.k));
    GEMINID_RETURN_IF_ERROR(ToHeads(place, mine, parts, kV, saved.v));
    GEMINID_RETURN_IF_ERROR(ToHeads(place, mine, parts, kOut, saved.out));
    GEMINID_RETURN_IF_ERROR(ToHeads(place, mine, parts, kOutGradient, dout));
    GEMINID_RETURN_IF_ERROR(
        TellIfRefused(swap_, AttendBackward(place, mine, parts, saved.lse.data())));
    GEMINID_RETURN_IF_ERROR(ToSlices(place, mine, parts, kQGradient, dq));
    GEMINID_RETURN_IF_ERROR(ToSlices(place, mine, parts, kKGradient, dk));
    return ToSlices(place, mine, parts, kVGradient, dv);
  }

  void Abort(const std::string& reason) override { swap_.Abort(reason); }

 private:
  using Parts = std::array<FloatBlock, kParts>;

  // The kernel accepts no shape without heads.
  absl::Status Check(const AttentionShape& mine) const {
    if (mine.heads % swap_.ranks() == 0 && mine.kv_heads % swap_.ranks() == 0) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d heads of queries and %d of keys cannot be shared out over %d ranks of the sequence; "
        "both must be multiples of the ranks",
        mine.heads, mine.kv_heads, swap_.ranks()));
  }

  absl::StatusOr<Parts> Take(Memory& memory, const AttentionShape& mine, int count) {
    Parts parts;
    for (int part = 0; part < count; ++part) {
      const size_t heads = IsOfQueries(part) ? mine.heads : mine.kv_heads;
      absl::StatusOr<FloatBlock> taken =
          FloatBlock::Allocate(memory, "whole sequences of a rank's heads",
                               mine.batch * mine.sequence * heads * mine.head_dim);
      GEMINID_RETURN_IF_ERROR(TellIfRefused(swap_, taken.status()));
      parts[static_cast<size_t>(part)] = *std::move(taken);
    }
    return parts;
  }

  absl::Status Attend(const LayerPlace& place, const AttentionShape& mine, const Parts& parts,
                      std::span<float> lse) const {
    const AttentionShape whole = WholeOf(mine, swap_.ranks());
    const size_t queries = whole.heads * whole.head_dim, keys = whole.kv_heads * whole.head_dim;
    return place.math.Of<float>().AttentionForward(
        whole, {parts[kQ].data(), queries}, {parts[kK].data(), keys}, {parts[kV].data(), keys},
        {parts[kOut].data(), queries}, lse.data());
  }

  absl::Status AttendBackward(const LayerPlace& place, const AttentionShape& mine,
                              const Parts& parts, const float* lse) const {
    const AttentionShape whole = WholeOf(mine, swap_.ranks());
    const size_t queries = whole.heads * whole.head_dim, keys = whole.kv_heads * whole.head_dim;
    const kernels::AttentionSaved<float> all = {.q = {parts[kQ].data(), queries},
                                                .k = {parts[kK].data(), keys},
                                                .v = {parts[kV].data(), keys},
                                                .out = {parts[kOut].data(), queries},
                                                .dout = {parts[kOutGradient].data(), queries},
                                                .lse = lse};
    return place.math.Of<float>().AttentionBackward(whole, all, {parts[kQGradient].data(), queries},
                                                    {parts[kKGradient].data(), keys},
                                                    {parts[kVGradient].data(), keys});
  }

  HeadsShape Of(const AttentionShape& mine, Part part) const {
    return {.batch = mine.batch,
            .sequence = mine.sequence * swap_.ranks(),
            .heads = IsOfQueries(part) ? mine.heads : mine.kv_heads,
            .head_dim = mine.head_dim};
  }

  absl::Status ToHeads(const LayerPlace& place, const AttentionShape& mine, const Parts& parts,
                       Part part, std::span<const float> pieces) {
    return Exchange(place, pieces, parts[part].all(), [&](const auto& from, const auto& to) {
      return swap_.ToHeads(Of(mine, part), from, to, MemoryOf(place));
    });
  }
  absl::Status ToSlices(const LayerPlace& place, const AttentionShape& mine, const Parts& parts,
                        Part part, std::span<float> pieces) {
    return Exchange(place, parts[part].all(), pieces, [&](const auto& from, const auto& to) {
      return swap_.ToSlices(Of(mine, part), from, to, MemoryOf(place));
    });
  }

  Memory& MemoryOf(const LayerPlace& place) const {
    return place.math.on_host() ? place.memory : *host_;
  }
  // Calls `exchange` with these values, or with copies of them in host memory.
  absl::Status Exchange(
      const LayerPlace& place, std::span<const float> from, std::span<float> to,
      absl::FunctionRef<absl::Status(std::span<const float>, std::span<float>)> exchange) {
    if (place.math.on_host()) return exchange(from, to);
    constexpr char kCopies[] = "copies for an exchange of heads";
    GEMINID_ASSIGN_OR_RETURN(const FloatBlock out,
                             AllocateOrTellRanks(swap_, *host_, kCopies, from.size()));
    GEMINID_ASSIGN_OR_RETURN(const FloatBlock in,
                             AllocateOrTellRanks(swap_, *host_, kCopies, to.size()));
    GEMINID_RETURN_IF_ERROR(place.math.Download(from.data(), from.size_bytes(), out.data()));
    GEMINID_RETURN_IF_ERROR(exchange(out.all(), in.all()));
    return place.math.Upload(in.data(), to.size_bytes(), to.data());
  }

  UlyssesExchange swap_;
  Memory* const host_;  // null: the host computes
};

}  // namespace

std::unique_ptr<SequenceParallelAttention> MakeRingSequenceAttention(RingRanks& ranks) {
  return std::make_unique<RingSequenceAttention>(ranks);
}

std::unique_ptr<SequenceParallelAttention> MakeUlyssesSequenceAttention(Communicator& ranks,
                                                                        Memory* host) {
  return std::make_unique<UlyssesSequenceAttention>(ranks, host);
}

size_t UlyssesSequenceAttentionBytes(const kernels::AttentionShape& mine, int ranks, RingPass turn,
                                     size_t threads) {
  const size_t per_head = sizeof(float) * mine.batch * mine.sequence * mine.head_dim;
  // Tensors of the queries' shape, and as many of the keys' shape.
  const size_t tensors = turn == RingPass::kForward ? 2 : 4;
  const size_t workspace =
      kernels::AttentionWorkspaceBytes(WholeOf(mine, static_cast<size_t>(ranks)), threads);
  return tensors * per_head * (mine.heads + mine.kv_heads) +
         std::max(2 * per_head * mine.heads, workspace);
}

}  // namespace geminid::collectives
