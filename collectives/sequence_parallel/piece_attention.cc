#include "collectives/sequence_parallel/piece_attention.h"

#include <array>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "collectives/sequence_parallel/head_swap.h"
#include "kernels/runtime/common/absl_status.h"
#include "kernels/runtime/common/workspace.h"
#include "kernels/runtime/parallel/tasks.h"

namespace geminid::collectives {
namespace {

using kernels::AttentionShape;
using kernels::FromKernel;

class RingOfPieces final : public PieceAttention {
 public:
  RingOfPieces(AsyncCommunicator& ranks, kernels::ThreadPool* pool) : ranks_(ranks), pool_(pool) {}

  absl::Status Forward(const AttentionShape& mine, std::span<const float> q,
                       std::span<const float> k, std::span<const float> v, std::span<float> out,
                       std::span<float> lse) override {
    GEMINID_ASSIGN_OR_RETURN(RingAttention* const ring, RingOf(mine));
    return ring->Forward(q, k, v, out, lse);
  }

  absl::Status Backward(const AttentionShape& mine, const Saved& saved, std::span<const float> dout,
                        std::span<float> dq, std::span<float> dk, std::span<float> dv) override {
    GEMINID_ASSIGN_OR_RETURN(RingAttention* const ring, RingOf(mine));
    return ring->Backward(saved, dout, dq, dk, dv);
  }

 private:
  absl::StatusOr<RingAttention*> RingOf(const AttentionShape& mine) {
    const RingShape whole = {.batch = mine.batch,
                             .sequence = mine.sequence * static_cast<size_t>(ranks_.WorldSize()),
                             .heads = mine.heads,
                             .kv_heads = mine.kv_heads,
                             .head_dim = mine.head_dim,
                             .scale = mine.scale};
    const Key key = {whole.batch, whole.sequence, whole.heads, whole.kv_heads, whole.head_dim};
    auto found = rings_.find(key);
    if (found == rings_.end()) {
      GEMINID_ASSIGN_OR_RETURN(RingAttention made, RingAttention::Make(whole, ranks_, pool_));
      found = rings_.emplace(key, std::move(made)).first;
    }
    return &found->second;
  }

  using Key = std::tuple<size_t, size_t, size_t, size_t, size_t>;
  AsyncCommunicator& ranks_;
  kernels::ThreadPool* const pool_;
  std::map<Key, RingAttention> rings_;  // by shape: few, with buffers each
};

class HeadsOfPieces final : public PieceAttention {
 public:
  HeadsOfPieces(Communicator& ranks, kernels::ThreadPool* pool) : swap_(&ranks), pool_(pool) {}

  absl::Status Forward(const AttentionShape& mine, std::span<const float> q,
                       std::span<const float> k, std::span<const float> v, std::span<float> out,
                       std::span<float> lse) override {
    GEMINID_RETURN_IF_ERROR(Check(mine));
    const AttentionShape whole = Whole(mine);
    GEMINID_RETURN_IF_ERROR(ToHeads(mine, kQ, q));
    GEMINID_RETURN_IF_ERROR(ToHeads(mine, kK, k));
    GEMINID_RETURN_IF_ERROR(ToHeads(mine, kV, v));
    const std::span<float> attended = Room(kOut, out.size());
    const size_t queries = whole.heads * whole.head_dim, keys = whole.kv_heads * whole.head_dim;
    const size_t bytes = kernels::AttentionWorkspaceBytes(whole, kernels::ThreadsOf(pool_));
    GEMINID_RETURN_IF_ERROR(FromKernel(
        kernels::AttentionForward<float>(whole, {parts_[kQ].data(), queries},
                                         {parts_[kK].data(), keys}, {parts_[kV].data(), keys},
                                         {attended.data(), queries}, lse.data(),
                                         workspace_.Bytes(bytes), bytes, pool_),
        "attention"));
    return swap_.ToPieces(Of(mine, mine.heads), attended, out);
  }

  absl::Status Backward(const AttentionShape& mine, const Saved& saved, std::span<const float> dout,
                        std::span<float> dq, std::span<float> dk, std::span<float> dv) override {
    GEMINID_RETURN_IF_ERROR(Check(mine));
    const AttentionShape whole = Whole(mine);
    GEMINID_RETURN_IF_ERROR(ToHeads(mine, kQ, saved.q));
    GEMINID_RETURN_IF_ERROR(ToHeads(mine, kK, saved.k));
    GEMINID_RETURN_IF_ERROR(ToHeads(mine, kV, saved.v));
    GEMINID_RETURN_IF_ERROR(ToHeads(mine, kOut, saved.out));
    GEMINID_RETURN_IF_ERROR(ToHeads(mine, kOutGradient, dout));
    const std::span<float> of_q = Room(kQGradient, dq.size());
    const std::span<float> of_k = Room(kKGradient, dk.size());
    const std::span<float> of_v = Room(kVGradient, dv.size());
    const size_t queries = whole.heads * whole.head_dim, keys = whole.kv_heads * whole.head_dim;
    const kernels::AttentionSaved<float> all = {.q = {parts_[kQ].data(), queries},
                                                .k = {parts_[kK].data(), keys},
                                                .v = {parts_[kV].data(), keys},
                                                .out = {parts_[kOut].data(), queries},
                                                .dout = {parts_[kOutGradient].data(), queries},
                                                .lse = saved.lse.data()};
    const size_t bytes = kernels::AttentionWorkspaceBytes(whole, kernels::ThreadsOf(pool_));
    GEMINID_RETURN_IF_ERROR(
        FromKernel(kernels::AttentionBackward<float>(whole, all, {of_q.data(), queries},
                                                     {of_k.data(), keys}, {of_v.data(), keys},
                                                     workspace_.Bytes(bytes), bytes, pool_),
                   "attention backward"));
    GEMINID_RETURN_IF_ERROR(swap_.ToPieces(Of(mine, mine.heads), of_q, dq));
    GEMINID_RETURN_IF_ERROR(swap_.ToPieces(Of(mine, mine.kv_heads), of_k, dk));
    return swap_.ToPieces(Of(mine, mine.kv_heads), of_v, dv);
  }

 private:
  // Whole sequences of this rank's share of the heads.
  enum Part { kQ, kK, kV, kOut, kOutGradient, kQGradient, kKGradient, kVGradient, kParts };

  // A share of no head would be none of the kernel's shapes.
  absl::Status Check(const AttentionShape& mine) const {
    if (mine.heads % swap_.ranks() == 0 && mine.kv_heads % swap_.ranks() == 0) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d heads of queries and %d of keys cannot be shared out over %d ranks of the sequence; "
        "both must be multiples of the ranks",
        mine.heads, mine.kv_heads, swap_.ranks()));
  }

  AttentionShape Whole(const AttentionShape& mine) const {
    AttentionShape whole = mine;
    whole.sequence *= swap_.ranks();
    whole.heads /= swap_.ranks();
    whole.kv_heads /= swap_.ranks();
    return whole;
  }

  HeadsShape Of(const AttentionShape& mine, size_t heads) const {
    return {.batch = mine.batch,
            .sequence = mine.sequence * swap_.ranks(),
            .heads = heads,
            .head_dim = mine.head_dim};
  }

  std::span<float> Room(Part part, size_t elements) {
    parts_[part].resize(elements);
    return parts_[part];
  }

  absl::Status ToHeads(const AttentionShape& mine, Part part, std::span<const float> pieces) {
    const bool queries = part == kQ || part == kOut || part == kOutGradient;
    return swap_.ToHeads(Of(mine, queries ? mine.heads : mine.kv_heads), pieces,
                         Room(part, pieces.size()));
  }

  HeadSwap swap_;
  kernels::ThreadPool* const pool_;
  std::array<std::vector<float>, kParts> parts_;
  kernels::Workspace workspace_;
};

}  // namespace

std::unique_ptr<PieceAttention> MakeRingOfPieces(AsyncCommunicator& ranks,
                                                 kernels::ThreadPool* pool) {
  return std::make_unique<RingOfPieces>(ranks, pool);
}

std::unique_ptr<PieceAttention> MakeHeadsOfPieces(Communicator& ranks, kernels::ThreadPool* pool) {
  return std::make_unique<HeadsOfPieces>(ranks, pool);
}

}  // namespace geminid::collectives
