#include "training/nn/parallel/sequence/ring_attention.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace geminid::collectives {
namespace {

using kernels::AttentionShape;
using kernels::HeadsView;

absl::Status CheckSize(const char* what, size_t size, size_t expected) {
  if (size == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "ring attention: %s has %d elements; this rank's part has %d", what, size, expected));
}

constexpr char kKeys[] = "keys and values of a ring";
constexpr char kWork[] = "attention to a chunk of a ring";

// The chunks of one batch entry that attention computes at a time.
AttentionShape ChunkOf(const RingShape& shape, size_t chunk) {
  return {.batch = 1,
          .sequence = chunk,
          .heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .scale = shape.scale,
          .causal = false};
}
size_t QueryElements(const AttentionShape& chunk) {
  return chunk.sequence * chunk.heads * chunk.head_dim;
}
size_t KeyElements(const AttentionShape& chunk) {
  return chunk.sequence * chunk.kv_heads * chunk.head_dim;
}
size_t LseElements(const AttentionShape& chunk) { return chunk.sequence * chunk.heads; }

}  // namespace

absl::StatusOr<RingAttention> RingAttention::Make(const RingShape& shape, RingRanks& ranks) {
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
  return RingAttention(shape, ranks);
}

RingAttention::RingAttention(const RingShape& shape, RingRanks& ranks)
    : shape_(shape),
      zigzag_{.sequence = shape.sequence, .ranks = static_cast<size_t>(ranks.WorldSize())},
      ranks_(&ranks),
      of_chunk_(collectives::ChunkOf(shape, zigzag_.chunk())) {}

int RingAttention::OwnerIn(int step) const {
  return (ranks_->Rank() + ranks_->WorldSize() - step) % ranks_->WorldSize();
}

// Each rank has two chunks of the sequence; the owner's second chunk mirrors its first. If the
// owner's rank is lower, all our queries see the owner's first chunk, and none sees its second. If
// it is higher, only the queries of our second chunk see the owner's chunks, and they see both.
std::span<const RingAttention::Pair> RingAttention::PairsOf(int owner) const {
  static constexpr Pair kOwn[] = {{.queries = 0,
                                   .keys = 0,
                                   .is_diagonal = true,
                                   .begins_queries = true,
                                   .begins_gradients = true},
                                  {.queries = 1,
                                   .keys = 1,
                                   .is_diagonal = true,
                                   .begins_queries = true,
                                   .begins_gradients = true},
                                  {.queries = 1, .keys = 0}};
  static constexpr Pair kOfLower[] = {{.queries = 0, .keys = 0, .begins_gradients = true},
                                      {.queries = 1, .keys = 0}};
  static constexpr Pair kOfHigher[] = {{.queries = 1, .keys = 0, .begins_gradients = true},
                                       {.queries = 1, .keys = 1, .begins_gradients = true}};
  if (owner == ranks_->Rank()) return kOwn;
  if (owner < ranks_->Rank()) return kOfLower;
  return kOfHigher;
}

absl::Status RingAttention::ForEach(
    std::span<const Pair> pairs, size_t batch,
    absl::FunctionRef<absl::Status(const Pair&, size_t entry)> call) {
  for (const Pair& pair : pairs) {
    for (size_t entry = 0; entry < batch; ++entry) {
      GEMINID_RETURN_IF_ERROR(call(pair, entry));
    }
  }
  return absl::OkStatus();
}

template <typename T>
HeadsView<T> RingAttention::ChunkOf(T* tensor, size_t heads, size_t entry, size_t chunk) const {
  const size_t width = heads * shape_.head_dim;
  return {.data = tensor + (entry * tokens() + chunk * zigzag_.chunk()) * width,
          .token_stride = width};
}

template <typename T>
T* RingAttention::LseOf(T* lse, size_t entry, size_t chunk) const {
  return lse + (2 * entry + chunk) * LseElements(of_chunk_);
}

absl::StatusOr<RingAttention::RingBuffer> RingAttention::TakeTravelling(Memory& memory,
                                                                        const char* what) const {
  RingBuffer tensors;
  if (ranks_->WorldSize() == 1) return tensors;
  const size_t elements = 2 * key_elements();
  GEMINID_ASSIGN_OR_RETURN(tensors.here, FloatBlock::Allocate(memory, what, elements));
  GEMINID_ASSIGN_OR_RETURN(tensors.coming, FloatBlock::Allocate(memory, what, elements));
  return tensors;
}

absl::StatusOr<RingAttention::Room> RingAttention::TakeForward(const LayerPlace& place) const {
  Room room = {.math = place.math};
  GEMINID_ASSIGN_OR_RETURN(room.keys, TakeTravelling(place.memory, kKeys));
  GEMINID_ASSIGN_OR_RETURN(room.queries,
                           FloatBlock::Allocate(place.memory, kWork, QueryElements(of_chunk_)));
  GEMINID_ASSIGN_OR_RETURN(room.others,
                           FloatBlock::Allocate(place.memory, kWork, LseElements(of_chunk_)));
  return room;
}

absl::StatusOr<RingAttention::Room> RingAttention::TakeBackward(const LayerPlace& place) const {
  constexpr char kGradients[] = "gradients of the keys and values of a ring";
  Room room = {.math = place.math};
  GEMINID_ASSIGN_OR_RETURN(room.keys, TakeTravelling(place.memory, kKeys));
  GEMINID_ASSIGN_OR_RETURN(room.gradients, TakeTravelling(place.memory, kGradients));
  const size_t shares = ranks_->WorldSize() > 1 ? 2 * key_elements() : 0;
  GEMINID_ASSIGN_OR_RETURN(room.shares, FloatBlock::Allocate(place.memory, kGradients, shares));
  const auto take = [&](size_t elements, FloatBlock* block) {
    GEMINID_ASSIGN_OR_RETURN(*block, FloatBlock::Allocate(place.memory, kWork, elements));
    return absl::OkStatus();
  };
  GEMINID_RETURN_IF_ERROR(take(QueryElements(of_chunk_), &room.queries));
  GEMINID_RETURN_IF_ERROR(take(KeyElements(of_chunk_), &room.others));
  GEMINID_RETURN_IF_ERROR(take(KeyElements(of_chunk_), &room.values));
  return room;
}

size_t RingAttentionBytes(const RingShape& shape, int ranks, RingPass turn, size_t threads) {
  const size_t tokens = shape.sequence / static_cast<size_t>(ranks);
  const size_t keys = shape.batch * tokens * shape.kv_heads * shape.head_dim;
  const AttentionShape chunk = ChunkOf(shape, tokens / 2);
  const bool forward = turn == RingPass::kForward;
  const size_t buffers = ranks == 1 ? 0 : (forward ? 4 : 10) * keys;
  const size_t results =
      QueryElements(chunk) + (forward ? LseElements(chunk) : 2 * KeyElements(chunk));
  return sizeof(float) * (buffers + results) + kernels::AttentionWorkspaceBytes(chunk, threads);
}

absl::Status RingAttention::Forward(const LayerPlace& place, std::span<const float> q,
                                    std::span<const float> k, std::span<const float> v,
                                    std::span<float> out, std::span<float> lse) {
  return TellIfRefused(*ranks_, RunForward(place, q, k, v, out, lse));
}

absl::Status RingAttention::Backward(const LayerPlace& place, const Saved& saved,
                                     std::span<const float> dout, std::span<float> dq,
                                     std::span<float> dk, std::span<float> dv) {
  return TellIfRefused(*ranks_, RunBackward(place, saved, dout, dq, dk, dv));
}

absl::Status RingAttention::RunForward(const LayerPlace& place, std::span<const float> q,
                                       std::span<const float> k, std::span<const float> v,
                                       std::span<float> out, std::span<float> lse) {
  GEMINID_RETURN_IF_ERROR(CheckSize("q", q.size(), query_elements()));
  GEMINID_RETURN_IF_ERROR(CheckSize("k", k.size(), key_elements()));
  GEMINID_RETURN_IF_ERROR(CheckSize("v", v.size(), key_elements()));
  GEMINID_RETURN_IF_ERROR(CheckSize("out", out.size(), query_elements()));
  GEMINID_RETURN_IF_ERROR(CheckSize("lse", lse.size(), lse_elements()));
  GEMINID_ASSIGN_OR_RETURN(Room room, TakeForward(place));
  return OverAllKeys(room, {k.data(), v.data()}, [&](int owner, const auto& keys) {
    return Attend(room, owner, q, keys, out, lse);
  });
}

void RingAttention::Pass(RingBuffer& tensors) {
  tensors.arrival = ranks_->Pass(tensors.here.all(), tensors.coming.all());
}

absl::Status RingAttention::Arrive(RingBuffer& tensors) {
  GEMINID_RETURN_IF_ERROR(tensors.arrival.Wait());
  std::swap(tensors.here, tensors.coming);
  return absl::OkStatus();
}

absl::Status RingAttention::Put(LayerMath& math, KeysAndValues<const float> from,
                                KeysAndValues<float> to) const {
  const size_t bytes = key_elements() * sizeof(float);
  GEMINID_RETURN_IF_ERROR(math.Copy(from.k, bytes, to.k));
  return math.Copy(from.v, bytes, to.v);
}

// The keys of the next step travel while this step uses its own. Buffers must not be freed during a
// transfer, so this waits for every transfer, even after an error.
absl::Status RingAttention::OverAllKeys(
    Room& room, KeysAndValues<const float> own,
    absl::FunctionRef<absl::Status(int owner, KeysAndValues<const float> keys)> use) {
  const int ranks = ranks_->WorldSize();
  RingBuffer& keys = room.keys;
  if (ranks > 1) GEMINID_RETURN_IF_ERROR(Put(room.math, own, In(keys.here.all())));
  for (int step = 0; step < ranks; ++step) {
    const bool more = step + 1 < ranks;
    if (more) Pass(keys);
    const std::span<const float> here = keys.here.all();
    absl::Status status = use(OwnerIn(step), step == 0 ? own : In(here));
    if (more) status.Update(Arrive(keys));
    GEMINID_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status RingAttention::Attend(const Room& room, int owner, std::span<const float> q,
                                   KeysAndValues<const float> keys, std::span<float> out,
                                   std::span<float> lse) {
  const size_t heads = shape_.heads, kv_heads = shape_.kv_heads;
  return ForEach(PairsOf(owner), shape_.batch, [&](const Pair& pair, size_t entry) {
    AttentionShape shape = of_chunk_;
    shape.causal = pair.is_diagonal;
    const HeadsView<float> all = ChunkOf(out.data(), heads, entry, pair.queries);
    float* const all_lse = LseOf(lse.data(), entry, pair.queries);
    const HeadsView<float> result =
        pair.begins_queries ? all : HeadsView<float>{room.queries.data(), all.token_stride};
    float* const result_lse = pair.begins_queries ? all_lse : room.others.data();
    GEMINID_RETURN_IF_ERROR(room.math.Of<float>().AttentionForward(
        shape, ChunkOf(q.data(), heads, entry, pair.queries),
        ChunkOf(keys.k, kv_heads, entry, pair.keys), ChunkOf(keys.v, kv_heads, entry, pair.keys),
        result, result_lse));
    if (pair.begins_queries) return absl::OkStatus();
    return room.math.MergeAttention({shape.sequence, heads, shape.head_dim}, result.data,
                                    result_lse, all.data, all_lse);
  });
}

absl::Status RingAttention::RunBackward(const LayerPlace& place, const Saved& saved,
                                        std::span<const float> dout, std::span<float> dq,
                                        std::span<float> dk, std::span<float> dv) {
  for (const size_t size : {saved.q.size(), saved.out.size(), dout.size(), dq.size()}) {
    GEMINID_RETURN_IF_ERROR(CheckSize("q, out, dout or dq", size, query_elements()));
  }
  for (const size_t size : {saved.k.size(), saved.v.size(), dk.size(), dv.size()}) {
    GEMINID_RETURN_IF_ERROR(CheckSize("k, v, dk or dv", size, key_elements()));
  }
  GEMINID_RETURN_IF_ERROR(CheckSize("lse", saved.lse.size(), lse_elements()));
  GEMINID_ASSIGN_OR_RETURN(Room room, TakeBackward(place));
  const bool travels = ranks_->WorldSize() > 1;
  RingBuffer& gradients = room.gradients;
  const KeysAndValues<float> own = {dk.data(), dv.data()};
  const auto use = [&](int owner, KeysAndValues<const float> keys) -> absl::Status {
    if (owner != ranks_->Rank()) return AddOthersKeyGradients(room, owner, saved, keys, dout, dq);
    GEMINID_RETURN_IF_ERROR(AttendBackward(room, owner, saved, keys, dout, dq, own));
    if (!travels) return absl::OkStatus();
    return Put(room.math, {own.k, own.v}, In(gradients.here.all()));
  };
  GEMINID_RETURN_IF_ERROR(OverAllKeys(room, {saved.k.data(), saved.v.data()}, use));
  if (!travels) return absl::OkStatus();
  Pass(gradients);  // back to the owner
  GEMINID_RETURN_IF_ERROR(Arrive(gradients));
  const std::span<const float> all = gradients.here.all();
  return Put(room.math, In(all), own);
}

// Receives the gradients for the current keys while this rank computes its contribution.
absl::Status RingAttention::AddOthersKeyGradients(Room& room, int owner, const Saved& saved,
                                                  KeysAndValues<const float> keys,
                                                  std::span<const float> dout,
                                                  std::span<float> dq) {
  Pass(room.gradients);
  const KeysAndValues<float> shares = In(room.shares.all());
  absl::Status status = AttendBackward(room, owner, saved, keys, dout, dq, shares);
  status.Update(Arrive(room.gradients));
  GEMINID_RETURN_IF_ERROR(status);
  const KeysAndValues<float> here = In(room.gradients.here.all());
  return ForEach(PairsOf(owner), shape_.batch, [&](const Pair& pair, size_t entry) {
    if (!pair.begins_gradients) return absl::OkStatus();
    for (const auto& [from, to] : {std::pair(shares.k, here.k), std::pair(shares.v, here.v)}) {
      const float* const share = ChunkOf(from, shape_.kv_heads, entry, pair.keys).data;
      GEMINID_RETURN_IF_ERROR(room.math.Of<float>().AddWide(
          {share, KeyElements(of_chunk_)}, ChunkOf(to, shape_.kv_heads, entry, pair.keys).data));
    }
    return absl::OkStatus();
  });
}

// With the lse and the results over all keys, the kernel's gradients of a pair are the pair's
// summands of the gradients over the whole sequence.
absl::Status RingAttention::AttendBackward(const Room& room, int owner, const Saved& saved,
                                           KeysAndValues<const float> keys,
                                           std::span<const float> dout, std::span<float> dq,
                                           KeysAndValues<float> to) {
  OperandMath<float>& math = room.math.Of<float>();
  const size_t heads = shape_.heads, kv_heads = shape_.kv_heads;
  // Where a gradient goes, and where the kernel writes it.
  struct Target {
    HeadsView<float> sum, written;
  };
  const auto target = [](bool begins, HeadsView<float> sum, const FloatBlock& beside) {
    return Target{sum, begins ? sum : HeadsView<float>{beside.data(), sum.token_stride}};
  };
  const auto add = [&](const Target& gradient, size_t elements) {
    if (gradient.sum.data == gradient.written.data) return absl::OkStatus();
    return math.AddWide({gradient.written.data, elements}, gradient.sum.data);
  };
  return ForEach(PairsOf(owner), shape_.batch, [&](const Pair& pair, size_t entry) {
    const auto queries = [&](auto* tensor) { return ChunkOf(tensor, heads, entry, pair.queries); };
    const auto of_keys = [&](auto* tensor) { return ChunkOf(tensor, kv_heads, entry, pair.keys); };
    AttentionShape shape = of_chunk_;
    shape.causal = pair.is_diagonal;
    const Target q = target(pair.begins_queries, queries(dq.data()), room.queries);
    const Target k = target(pair.begins_gradients, of_keys(to.k), room.others);
    const Target v = target(pair.begins_gradients, of_keys(to.v), room.values);
    GEMINID_RETURN_IF_ERROR(
        math.AttentionBackward(shape,
                               {.q = queries(saved.q.data()),
                                .k = of_keys(keys.k),
                                .v = of_keys(keys.v),
                                .out = queries(saved.out.data()),
                                .dout = queries(dout.data()),
                                .lse = LseOf(saved.lse.data(), entry, pair.queries)},
                               q.written, k.written, v.written));
    GEMINID_RETURN_IF_ERROR(add(q, QueryElements(shape)));
    GEMINID_RETURN_IF_ERROR(add(k, KeyElements(shape)));
    return add(v, KeyElements(shape));
  });
}

}  // namespace geminid::collectives
