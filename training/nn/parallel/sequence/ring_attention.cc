#include "training/nn/parallel/sequence/ring_attention.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kernels/runtime/common/absl_status.h"
#include "kernels/runtime/parallel/tasks.h"

namespace geminid::collectives {
namespace {

using kernels::FromKernel;

absl::Status CheckSize(const char* what, size_t size, size_t expected) {
  if (size == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "ring attention: %s has %d elements; this rank's part has %d", what, size, expected));
}

constexpr char kKeys[] = "keys and values of a ring";

// Copies keys, or their gradients, and then values.
void Put(std::span<const float> k, std::span<const float> v, const FloatBlock& to) {
  std::ranges::copy(v, std::ranges::copy(k, to.all().begin()).out);
}

// The larger of both, in elements.
size_t ElementsOfWork(size_t workspace_bytes, size_t elements) {
  return std::max((workspace_bytes + sizeof(float) - 1) / sizeof(float), elements);
}

}  // namespace

absl::StatusOr<RingAttention> RingAttention::Make(const RingShape& shape, AsyncCommunicator& ranks,
                                                  kernels::ThreadPool* pool) {
  const auto chunks = 2 * static_cast<size_t>(ranks.WorldSize());
  if (shape.sequence == 0 || shape.sequence % chunks != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d tokens cannot be divided into %d chunks, two for each of %d ranks of "
                        "the sequence; take a "
                        "multiple of %d tokens, or other ranks",
                        shape.sequence, chunks, ranks.WorldSize(), chunks));
  }
  if (shape.batch == 0 || shape.head_dim == 0 || shape.kv_heads == 0 ||
      shape.heads % shape.kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "ring attention of %d entries, %d heads, %d of them for keys, of %d elements; each must be "
        "1 or more, and the heads divisible by those for keys",
        shape.batch, shape.heads, shape.kv_heads, shape.head_dim));
  }
  return RingAttention(shape, ranks, pool);
}

RingAttention::RingAttention(const RingShape& shape, AsyncCommunicator& ranks,
                             kernels::ThreadPool* pool)
    : shape_(shape),
      zigzag_{.sequence = shape.sequence, .ranks = static_cast<size_t>(ranks.WorldSize())},
      ranks_(&ranks),
      pool_(pool),
      visible_(shape.head_dim, shape.scale, pool) {}

kernels::AttentionShape RingAttention::Own() const {
  return {.batch = shape_.batch,
          .sequence = tokens(),
          .heads = shape_.heads,
          .kv_heads = shape_.kv_heads,
          .head_dim = shape_.head_dim,
          .scale = shape_.scale};
}

int RingAttention::OwnerIn(int step) const {
  return (ranks_->Rank() + ranks_->WorldSize() - step) % ranks_->WorldSize();
}

// Each rank has two chunks of the sequence; the owner's second chunk mirrors its first. If the
// owner's rank is lower, all our queries see the owner's first chunk, and none sees its second. If
// it is higher, only the queries of our second chunk see the owner's chunks, and they see both.
RingAttention::Visible RingAttention::VisibleOf(int owner) const {
  const size_t chunk = zigzag_.chunk();
  if (owner < ranks_->Rank()) return {.first_query = 0, .queries = 2 * chunk, .keys = chunk};
  return {.first_query = chunk, .queries = chunk, .keys = 2 * chunk};
}

template <class T>
HeadRows<T> RingAttention::RowsOf(T* tensor, size_t heads, size_t entry, size_t head, size_t first,
                                  size_t count) const {
  const size_t row = (entry * tokens() + first) * heads + head;
  return {tensor + row * shape_.head_dim, heads * shape_.head_dim, count};
}

absl::StatusOr<RingAttention::Travelling> RingAttention::TakeTravelling(Memory& memory,
                                                                        const char* what) const {
  Travelling tensors;
  if (ranks_->WorldSize() == 1) return tensors;
  const size_t elements = 2 * key_elements();
  GEMINID_ASSIGN_OR_RETURN(tensors.here, FloatBlock::Allocate(memory, what, elements));
  GEMINID_ASSIGN_OR_RETURN(tensors.coming, FloatBlock::Allocate(memory, what, elements));
  return tensors;
}

absl::StatusOr<FloatBlock> RingAttention::TakeWork(Memory& memory, size_t elements) const {
  const size_t bytes = kernels::AttentionWorkspaceBytes(Own(), kernels::ThreadsOf(pool_));
  return FloatBlock::Allocate(memory, "workspace of ring attention",
                              ElementsOfWork(bytes, elements));
}

absl::StatusOr<RingAttention::Room> RingAttention::TakeForward(Memory& memory) const {
  const bool travels = ranks_->WorldSize() > 1;
  const size_t visible = travels ? VisibleAttention::ElementsToMerge(tokens(), shape_.head_dim) : 0;
  Room room;
  GEMINID_ASSIGN_OR_RETURN(room.keys, TakeTravelling(memory, kKeys));
  GEMINID_ASSIGN_OR_RETURN(room.work, TakeWork(memory, visible));
  if (travels) {
    room.visible = VisibleAttention::RoomIn(memory, tokens(), room.work.all().first(visible));
  }
  return room;
}

absl::StatusOr<RingAttention::Room> RingAttention::TakeBackward(Memory& memory) const {
  const bool travels = ranks_->WorldSize() > 1;
  const size_t shares = travels ? 2 * key_elements() : 0;
  const size_t visible = travels ? VisibleAttention::ElementsForGradients(tokens()) : 0;
  Room room;
  GEMINID_ASSIGN_OR_RETURN(room.keys, TakeTravelling(memory, kKeys));
  GEMINID_ASSIGN_OR_RETURN(room.gradients,
                           TakeTravelling(memory, "gradients of the keys and values of a ring"));
  GEMINID_ASSIGN_OR_RETURN(room.delta,
                           FloatBlock::Allocate(memory, "sums of queries", lse_elements()));
  GEMINID_ASSIGN_OR_RETURN(room.work, TakeWork(memory, shares + visible));
  if (travels) {
    room.shares = room.work.all().first(shares);
    room.visible =
        VisibleAttention::RoomIn(memory, tokens(), room.work.all().subspan(shares, visible));
  }
  return room;
}

size_t RingAttentionBytes(const RingShape& shape, int ranks, RingTurn turn, size_t threads) {
  const size_t tokens = shape.sequence / static_cast<size_t>(ranks);
  const size_t keys = shape.batch * tokens * shape.kv_heads * shape.head_dim;
  const bool forward = turn == RingTurn::kForward, travels = ranks > 1;
  const size_t workspace = kernels::AttentionWorkspaceBytes({.batch = shape.batch,
                                                             .sequence = tokens,
                                                             .heads = shape.heads,
                                                             .kv_heads = shape.kv_heads,
                                                             .head_dim = shape.head_dim,
                                                             .scale = shape.scale},
                                                            threads);
  const size_t delta = forward ? 0 : shape.batch * tokens * shape.heads;
  const size_t travelling = travels ? (forward ? 4 : 8) * keys : 0;
  const size_t of_others = forward ? VisibleAttention::ElementsToMerge(tokens, shape.head_dim)
                                   : 2 * keys + VisibleAttention::ElementsForGradients(tokens);
  return sizeof(float) * (delta + travelling + ElementsOfWork(workspace, travels ? of_others : 0));
}

absl::Status RingAttention::Forward(std::span<const float> q, std::span<const float> k,
                                    std::span<const float> v, std::span<float> out,
                                    std::span<float> lse, Memory& memory) {
  return TellIfRefused(*ranks_, RunForward(q, k, v, out, lse, memory));
}

absl::Status RingAttention::Backward(const Saved& saved, std::span<const float> dout,
                                     std::span<float> dq, std::span<float> dk, std::span<float> dv,
                                     Memory& memory) {
  return TellIfRefused(*ranks_, RunBackward(saved, dout, dq, dk, dv, memory));
}

absl::Status RingAttention::RunForward(std::span<const float> q, std::span<const float> k,
                                       std::span<const float> v, std::span<float> out,
                                       std::span<float> lse, Memory& memory) {
  GEMINID_RETURN_IF_ERROR(CheckSize("q", q.size(), query_elements()));
  GEMINID_RETURN_IF_ERROR(CheckSize("k", k.size(), key_elements()));
  GEMINID_RETURN_IF_ERROR(CheckSize("v", v.size(), key_elements()));
  GEMINID_RETURN_IF_ERROR(CheckSize("out", out.size(), query_elements()));
  GEMINID_RETURN_IF_ERROR(CheckSize("lse", lse.size(), lse_elements()));
  GEMINID_ASSIGN_OR_RETURN(Room room, TakeForward(memory));
  return OverAllKeys(
      room.keys, k, v, [&] { return AttendToOwn(room, q, k, v, out, lse); },
      [&](int step) { return MergeVisible(room, OwnerIn(step), q, out, lse); });
}

// The two chunks of a rank are in the order of the sequence, so causal attention among them is that
// of the sequence.
absl::Status RingAttention::AttendToOwn(const Room& room, std::span<const float> q,
                                        std::span<const float> k, std::span<const float> v,
                                        std::span<float> out, std::span<float> lse) {
  const kernels::AttentionShape own = Own();
  const size_t queries = shape_.heads * shape_.head_dim, keys = shape_.kv_heads * shape_.head_dim;
  return FromKernel(
      kernels::AttentionForward<float>(own, {q.data(), queries}, {k.data(), keys}, {v.data(), keys},
                                       {out.data(), queries}, lse.data(), room.work.data(),
                                       room.work.all().size_bytes(), pool_),
      "attention");
}

void RingAttention::Pass(Travelling& tensors) {
  const int ranks = ranks_->WorldSize();
  tensors.arrival = ranks_->SendReceive(tensors.here.all(), (ranks_->Rank() + 1) % ranks,
                                        tensors.coming.all(), (ranks_->Rank() + ranks - 1) % ranks);
}

absl::Status RingAttention::Arrive(Travelling& tensors) {
  GEMINID_RETURN_IF_ERROR(tensors.arrival.Wait());
  std::swap(tensors.here, tensors.coming);
  return absl::OkStatus();
}

// The keys of the next step travel while this step uses its own. Buffers must not be freed during a
// transfer, so this waits for every transfer, even after an error.
absl::Status RingAttention::OverAllKeys(Travelling& keys, std::span<const float> k,
                                        std::span<const float> v,
                                        absl::FunctionRef<absl::Status()> use_own,
                                        absl::FunctionRef<absl::Status(int)> use) {
  const int ranks = ranks_->WorldSize();
  if (ranks > 1) Put(k, v, keys.here);
  for (int step = 0; step < ranks; ++step) {
    const bool more = step + 1 < ranks;
    if (more) Pass(keys);
    absl::Status status = step == 0 ? use_own() : use(step);
    if (more) status.Update(Arrive(keys));
    GEMINID_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status RingAttention::MergeVisible(const Room& room, int owner, std::span<const float> q,
                                         std::span<float> out, std::span<float> lse) {
  const Visible seen = VisibleOf(owner);
  const float* k = room.keys.here.data();
  const float* v = k + key_elements();
  const size_t group = shape_.heads / shape_.kv_heads;
  for (size_t entry = 0; entry < shape_.batch; ++entry) {
    for (size_t head = 0; head < shape_.heads; ++head) {
      const auto queries = [&](auto* tensor) {
        return RowsOf(tensor, shape_.heads, entry, head, seen.first_query, seen.queries);
      };
      const auto keys = [&](const float* tensor) {
        return RowsOf(tensor, shape_.kv_heads, entry, head / group, 0, seen.keys);
      };
      float* sums = &lse[(entry * shape_.heads + head) * tokens() + seen.first_query];
      GEMINID_RETURN_IF_ERROR(visible_.Merge(room.visible, queries(q.data()), keys(k), keys(v),
                                             queries(out.data()), sums));
    }
  }
  return absl::OkStatus();
}

absl::Status RingAttention::RunBackward(const Saved& saved, std::span<const float> dout,
                                        std::span<float> dq, std::span<float> dk,
                                        std::span<float> dv, Memory& memory) {
  for (const size_t size : {saved.q.size(), saved.out.size(), dout.size(), dq.size()}) {
    GEMINID_RETURN_IF_ERROR(CheckSize("q, out, dout or dq", size, query_elements()));
  }
  for (const size_t size : {saved.k.size(), saved.v.size(), dk.size(), dv.size()}) {
    GEMINID_RETURN_IF_ERROR(CheckSize("k, v, dk or dv", size, key_elements()));
  }
  GEMINID_RETURN_IF_ERROR(CheckSize("lse", saved.lse.size(), lse_elements()));
  GEMINID_ASSIGN_OR_RETURN(Room room, TakeBackward(memory));
  const bool travels = ranks_->WorldSize() > 1;
  Travelling& gradients = room.gradients;
  const auto use_own = [&] {
    GEMINID_RETURN_IF_ERROR(GradientsOfOwn(room, saved, dout, dq, dk, dv));
    if (travels) Put(dk, dv, gradients.here);
    return absl::OkStatus();
  };
  GEMINID_RETURN_IF_ERROR(OverAllKeys(room.keys, saved.k, saved.v, use_own, [&](int step) {
    return AddToThoseOfOthers(room, OwnerIn(step), saved, dout, dq);
  }));
  if (!travels) return absl::OkStatus();
  Pass(gradients);  // back to the owner
  GEMINID_RETURN_IF_ERROR(Arrive(gradients));
  std::ranges::copy(gradients.here.all().first(key_elements()), dk.begin());
  std::ranges::copy(gradients.here.all().last(key_elements()), dv.begin());
  return absl::OkStatus();
}

// Receives the gradients for the current keys while this rank computes its contribution.
absl::Status RingAttention::AddToThoseOfOthers(Room& room, int owner, const Saved& saved,
                                               std::span<const float> dout, std::span<float> dq) {
  Pass(room.gradients);
  std::ranges::fill(room.shares, 0.0f);
  absl::Status status = AddVisible(room, owner, saved, dout, dq);
  status.Update(Arrive(room.gradients));
  GEMINID_RETURN_IF_ERROR(status);
  const std::span<float> here = room.gradients.here.all();
  std::ranges::transform(here, room.shares, here.begin(), std::plus<>());
  return absl::OkStatus();
}

absl::Status RingAttention::GradientsOfOwn(const Room& room, const Saved& saved,
                                           std::span<const float> dout, std::span<float> dq,
                                           std::span<float> dk, std::span<float> dv) {
  const size_t width = shape_.head_dim;
  float* const delta = room.delta.data();
  for (size_t row = 0; row < lse_elements(); ++row) {
    const size_t head = row % shape_.heads, token = row / shape_.heads;  // of all batch entries
    double sum = 0;
    for (size_t i = row * width; i < (row + 1) * width; ++i) {
      sum += static_cast<double>(dout[i]) * static_cast<double>(saved.out[i]);
    }
    const size_t entry = token / tokens();
    delta[(entry * shape_.heads + head) * tokens() + token % tokens()] = static_cast<float>(sum);
  }
  const kernels::AttentionShape own = Own();
  const size_t queries = shape_.heads * width, keys = shape_.kv_heads * width;
  // With the lse of all keys, the kernel's softmax is that of the whole sequence.
  const kernels::AttentionSaved<float> of_own = {.q = {saved.q.data(), queries},
                                                 .k = {saved.k.data(), keys},
                                                 .v = {saved.v.data(), keys},
                                                 .out = {saved.out.data(), queries},
                                                 .dout = {dout.data(), queries},
                                                 .lse = saved.lse.data()};
  return FromKernel(kernels::AttentionBackward<float>(
                        own, of_own, {dq.data(), queries}, {dk.data(), keys}, {dv.data(), keys},
                        room.work.data(), room.work.all().size_bytes(), pool_),
                    "attention");
}

absl::Status RingAttention::AddVisible(const Room& room, int owner, const Saved& saved,
                                       std::span<const float> dout, std::span<float> dq) {
  const Visible seen = VisibleOf(owner);
  const size_t group = shape_.heads / shape_.kv_heads;
  for (size_t entry = 0; entry < shape_.batch; ++entry) {
    for (size_t head = 0; head < shape_.heads; ++head) {
      const auto queries = [&](auto* tensor) {
        return RowsOf(tensor, shape_.heads, entry, head, seen.first_query, seen.queries);
      };
      const auto keys = [&](auto* tensor) {
        return RowsOf(tensor, shape_.kv_heads, entry, head / group, 0, seen.keys);
      };
      const size_t row = (entry * shape_.heads + head) * tokens() + seen.first_query;
      const float* k = room.keys.here.data();
      float* dk = room.shares.data();
      GEMINID_RETURN_IF_ERROR(visible_.AddGradients(room.visible,
                                                    {.q = queries(saved.q.data()),
                                                     .dout = queries(dout.data()),
                                                     .lse = &saved.lse[row],
                                                     .delta = &room.delta.data()[row]},
                                                    keys(k), keys(k + key_elements()),
                                                    queries(dq.data()), keys(dk),
                                                    keys(dk + key_elements())));
    }
  }
  return absl::OkStatus();
}

}  // namespace geminid::collectives
