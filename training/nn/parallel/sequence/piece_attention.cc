#include "training/nn/parallel/sequence/piece_attention.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kernels/runtime/common/absl_status.h"
#include "kernels/runtime/parallel/tasks.h"
#include "training/nn/parallel/sequence/head_swap.h"

namespace geminid::collectives {
namespace {

using kernels::AttentionShape;
using kernels::FromKernel;

class RingOfPieces final : public PieceAttention {
 public:
  RingOfPieces(AsyncCommunicator& ranks, kernels::ThreadPool* pool) : ranks_(ranks), pool_(pool) {}

  absl::Status Forward(Memory& memory, const AttentionShape& mine, std::span<const float> q,
                       std::span<const float> k, std::span<const float> v, std::span<float> out,
                       std::span<float> lse) override {
    GEMINID_ASSIGN_OR_RETURN(RingAttention ring, RingOf(mine));
    return ring.Forward(q, k, v, out, lse, memory);
  }

  absl::Status Backward(Memory& memory, const AttentionShape& mine, const Saved& saved,
                        std::span<const float> dout, std::span<float> dq, std::span<float> dk,
                        std::span<float> dv) override {
    GEMINID_ASSIGN_OR_RETURN(RingAttention ring, RingOf(mine));
    return ring.Backward(saved, dout, dq, dk, dv, memory);
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
    return RingAttention::Make(whole, ranks_, pool_);
  }

  AsyncCommunicator& ranks_;
  kernels::ThreadPool* const pool_;
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

size_t WorkspaceOf(const AttentionShape& whole, kernels::ThreadPool* pool) {
  return kernels::AttentionWorkspaceBytes(whole, kernels::ThreadsOf(pool));
}

class HeadsOfPieces final : public PieceAttention {
 public:
  HeadsOfPieces(Communicator& ranks, kernels::ThreadPool* pool) : swap_(&ranks), pool_(pool) {}

  absl::Status Forward(Memory& memory, const AttentionShape& mine, std::span<const float> q,
                       std::span<const float> k, std::span<const float> v, std::span<float> out,
                       std::span<float> lse) override {
    GEMINID_RETURN_IF_ERROR(Check(mine));
    GEMINID_ASSIGN_OR_RETURN(const Parts parts, Take(memory, mine, kForwardParts));
    GEMINID_RETURN_IF_ERROR(ToHeads(memory, mine, parts, kQ, q));
    GEMINID_RETURN_IF_ERROR(ToHeads(memory, mine, parts, kK, k));
    GEMINID_RETURN_IF_ERROR(ToHeads(memory, mine, parts, kV, v));
    GEMINID_RETURN_IF_ERROR(TellIfRefused(swap_, Attend(memory, mine, parts, lse)));
    return ToPieces(memory, mine, parts, kOut, out);
  }

  absl::Status Backward(Memory& memory, const AttentionShape& mine, const Saved& saved,
                        std::span<const float> dout, std::span<float> dq, std::span<float> dk,
                        std::span<float> dv) override {
    GEMINID_RETURN_IF_ERROR(Check(mine));
    GEMINID_ASSIGN_OR_RETURN(const Parts parts, Take(memory, mine, kParts));
    GEMINID_RETURN_IF_ERROR(ToHeads(memory, mine, parts, kQ, saved.q));
    GEMINID_RETURN_IF_ERROR(ToHeads(memory, mine, parts, kK, saved.k));
    GEMINID_RETURN_IF_ERROR(ToHeads(memory, mine, parts, kV, saved.v));
    GEMINID_RETURN_IF_ERROR(ToHeads(memory, mine, parts, kOut, saved.out));
    GEMINID_RETURN_IF_ERROR(ToHeads(memory, mine, parts, kOutGradient, dout));
    GEMINID_RETURN_IF_ERROR(
        TellIfRefused(swap_, AttendBackward(memory, mine, parts, saved.lse.data())));
    GEMINID_RETURN_IF_ERROR(ToPieces(memory, mine, parts, kQGradient, dq));
    GEMINID_RETURN_IF_ERROR(ToPieces(memory, mine, parts, kKGradient, dk));
    return ToPieces(memory, mine, parts, kVGradient, dv);
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

  absl::StatusOr<Memory::Block> TakeWorkspace(Memory& memory, const AttentionShape& whole) const {
    return memory.Allocate("attention to a rank's heads", WorkspaceOf(whole, pool_));
  }

  absl::Status Attend(Memory& memory, const AttentionShape& mine, const Parts& parts,
                      std::span<float> lse) const {
    const AttentionShape whole = WholeOf(mine, swap_.ranks());
    const size_t queries = whole.heads * whole.head_dim, keys = whole.kv_heads * whole.head_dim;
    GEMINID_ASSIGN_OR_RETURN(const Memory::Block workspace, TakeWorkspace(memory, whole));
    return FromKernel(
        kernels::AttentionForward<float>(
            whole, {parts[kQ].data(), queries}, {parts[kK].data(), keys}, {parts[kV].data(), keys},
            {parts[kOut].data(), queries}, lse.data(), workspace.data(), workspace.bytes(), pool_),
        "attention");
  }

  absl::Status AttendBackward(Memory& memory, const AttentionShape& mine, const Parts& parts,
                              const float* lse) const {
    const AttentionShape whole = WholeOf(mine, swap_.ranks());
    const size_t queries = whole.heads * whole.head_dim, keys = whole.kv_heads * whole.head_dim;
    const kernels::AttentionSaved<float> all = {.q = {parts[kQ].data(), queries},
                                                .k = {parts[kK].data(), keys},
                                                .v = {parts[kV].data(), keys},
                                                .out = {parts[kOut].data(), queries},
                                                .dout = {parts[kOutGradient].data(), queries},
                                                .lse = lse};
    GEMINID_ASSIGN_OR_RETURN(const Memory::Block workspace, TakeWorkspace(memory, whole));
    return FromKernel(
        kernels::AttentionBackward<float>(
            whole, all, {parts[kQGradient].data(), queries}, {parts[kKGradient].data(), keys},
            {parts[kVGradient].data(), keys}, workspace.data(), workspace.bytes(), pool_),
        "attention backward");
  }

  HeadsShape Of(const AttentionShape& mine, Part part) const {
    return {.batch = mine.batch,
            .sequence = mine.sequence * swap_.ranks(),
            .heads = IsOfQueries(part) ? mine.heads : mine.kv_heads,
            .head_dim = mine.head_dim};
  }

  absl::Status ToHeads(Memory& memory, const AttentionShape& mine, const Parts& parts, Part part,
                       std::span<const float> pieces) {
    return swap_.ToHeads(Of(mine, part), pieces, parts[part].all(), memory);
  }
  absl::Status ToPieces(Memory& memory, const AttentionShape& mine, const Parts& parts, Part part,
                        std::span<float> pieces) {
    return swap_.ToPieces(Of(mine, part), parts[part].all(), pieces, memory);
  }

  HeadSwap swap_;
  kernels::ThreadPool* const pool_;
};

}  // namespace

std::unique_ptr<PieceAttention> MakeRingOfPieces(AsyncCommunicator& ranks,
                                                 kernels::ThreadPool* pool) {
  return std::make_unique<RingOfPieces>(ranks, pool);
}

std::unique_ptr<PieceAttention> MakeHeadsOfPieces(Communicator& ranks, kernels::ThreadPool* pool) {
  return std::make_unique<HeadsOfPieces>(ranks, pool);
}

size_t HeadsOfPiecesBytes(const kernels::AttentionShape& mine, int ranks, RingTurn turn,
                          size_t threads) {
  const size_t per_head = sizeof(float) * mine.batch * mine.sequence * mine.head_dim;
  // Tensors of the queries' shape, and as many of the keys' shape.
  const size_t tensors = turn == RingTurn::kForward ? 2 : 4;
  const size_t workspace =
      kernels::AttentionWorkspaceBytes(WholeOf(mine, static_cast<size_t>(ranks)), threads);
  return tensors * per_head * (mine.heads + mine.kv_heads) +
         std::max(2 * per_head * mine.heads, workspace);
}

}  // namespace geminid::collectives
