#include "kernels/model/attention/attention_library_cuda.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "kernels/model/attention/attention_graph_cuda.h"
#include "kernels/model/attention/checks.h"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {
namespace {

constexpr size_t kDnnAlignment = 256;  // of workspace

std::byte* Aligned(void* workspace) {
  const auto address = reinterpret_cast<uintptr_t>(workspace);
  return static_cast<std::byte*>(workspace) + (RoundUpTo(address, kDnnAlignment) - address);
}

// Up to version 9.15, gradients are wrong if the last block of keys is not whole.
bool KnowsShortBlocks(size_t version) {
  constexpr size_t kFirst = 91501;
  return version >= kFirst;
}

const char* UnsuitedShape(const AttentionShape& shape, size_t version) {
  constexpr size_t kHeadDimMultiple = 8, kKeysOfBlock = 128;
  if (shape.first_query != 0) return "queries begin in the middle of the sequence";
  if (shape.window != 0) return "its queries see a sliding window";
  if (!shape.causal) return "its queries see the tokens after them";
  if (shape.head_dim % kHeadDimMultiple != 0) return "its heads are no multiple of 8 wide";
  if (shape.sequence < 2) return "its sequences are of one token";
  if (shape.sequence % kKeysOfBlock != 0 && !KnowsShortBlocks(version)) {
    return "its sequences are no multiple of 128 long, which cuDNN gets wrong before 9.15.1";
  }
  return nullptr;
}

std::string TooMuch(uint64_t bytes, uint64_t allowed) {
  return "a part of it takes " + std::to_string(bytes) + " bytes of workspace, of which " +
         std::to_string(allowed) + " are allowed";
}

AttentionHeads HeadsOf(const AttentionShape& shape, const AttentionParts& parts) {
  const auto number = [](uint64_t value) { return static_cast<int64_t>(value); };
  const uint64_t group = shape.heads / shape.kv_heads;
  return {.batch = number(parts.batch),
          .heads = number(parts.kv_heads * group),
          .kv_heads = number(parts.kv_heads),
          .sequence = number(shape.sequence),
          .head_dim = number(shape.head_dim),
          .query_stride = number(shape.heads * shape.head_dim),
          .kv_stride = number(shape.kv_heads * shape.head_dim)};
}

// The begin of a part in each kind of tensor, in elements.
struct PartPlace {
  size_t query = 0;
  size_t key = 0;
  size_t row = 0;
};

// Calls `work` for each part until `work` returns false.
template <class Work>
bool ForEachPart(const AttentionShape& shape, const AttentionParts& parts, const Work& work) {
  const size_t group = shape.heads / shape.kv_heads;
  for (size_t batch = 0; batch < shape.batch; batch += parts.batch) {
    const size_t token = batch * shape.sequence;
    for (size_t head = 0; head < shape.kv_heads; head += parts.kv_heads) {
      const PartPlace place = {.query = (token * shape.heads + head * group) * shape.head_dim,
                               .key = (token * shape.kv_heads + head) * shape.head_dim,
                               .row = token * shape.heads + head * group * shape.sequence};
      if (!work(place)) return false;
    }
  }
  return true;
}

// A pointer for cuDNN, which has no pointers to const data.
template <typename T>
void* Place(const T* data, size_t elements) {
  return const_cast<void*>(static_cast<const void*>(data + elements));
}

// The tensors that are passed by value.
struct ScalarTensors {
  explicit ScalarTensors(float s) : scale(s) {}
  float scale;
  float masked = -std::numeric_limits<float>::infinity();
  float one = 1;
};

}  // namespace

std::unique_ptr<AttentionLibrary> AttentionLibrary::Load(std::string* error) {
  gpu::CudnnApi api;
  if (!gpu::LoadCudnnApi(&api, error)) return nullptr;
  gpu::DnnHandle handle = nullptr;
  const gpu::DnnStatus status = api.create(&handle);
  if (status != gpu::DnnStatus::kSuccess) {
    *error = api.path + " does not start: " + api.status_string(status);
    return nullptr;
  }
  return std::unique_ptr<AttentionLibrary>(new AttentionLibrary(std::move(api), handle));
}

AttentionLibrary::~AttentionLibrary() {
  plans_.clear();
  api_.destroy(handle_);
}

std::string AttentionLibrary::Name() const {
  return "cuDNN " + gpu::CudnnVersion(api_.version()) + " (" + api_.path + ")";
}

std::string AttentionLibrary::Describe() const {
  std::string text = Name();
  for (const auto& [key, plan] : plans_) {
    if (plan.state != AttentionPlan::State::kRefused) continue;
    const auto& [batch, sequence, heads, kv_heads, head_dim, scale, window, causal] = key;
    text += "; a kernel of our own for " + std::to_string(batch) + " x " +
            std::to_string(sequence) + " tokens in " + std::to_string(heads) + " heads of " +
            std::to_string(head_dim) + ": " + plan.why;
  }
  return text;
}

AttentionPlan& AttentionLibrary::Plan(const AttentionShape& shape) {
  const Key key = {shape.batch,    shape.sequence,
                   shape.heads,    shape.kv_heads,
                   shape.head_dim, std::bit_cast<uint32_t>(shape.scale),
                   shape.window,   static_cast<uint64_t>(shape.causal)};
  const auto [place, is_new] = plans_.try_emplace(key);
  AttentionPlan& plan = place->second;
  if (is_new && Prepare(shape, plan)) plan.state = AttentionPlan::State::kUntested;
  return plan;
}

bool AttentionLibrary::Prepare(const AttentionShape& shape, AttentionPlan& plan) const {
  if (CheckAttentionShape(shape) != Status::kOk || shape.batch == 0) {
    plan.why = "it is no shape of attention";
    return false;
  }
  if (const char* const unsuited = UnsuitedShape(shape, api_.version()); unsuited != nullptr) {
    plan.why = unsuited;
    return false;
  }
  const AttentionParts parts = PartsOfAttention(shape);
  if (parts.batch > 0) return PlanParts(shape, parts, plan);
  plan.why = TooMuch(AttentionLibraryBytes(shape, 1, 1), kAttentionPartBytesMax);
  return false;
}

bool AttentionLibrary::PlanParts(const AttentionShape& shape, const AttentionParts& parts,
                                 AttentionPlan& plan) const {
  plan.parts = parts;
  const AttentionHeads heads = HeadsOf(shape, parts);
  plan.forward = AttentionForwardGraph(api_, heads);
  plan.backward = AttentionBackwardGraph(api_, heads);
  for (DnnGraph* const graph : {plan.forward.get(), plan.backward.get()}) {
    if (!graph->Plan({.handle = handle_}, &plan.why)) return false;
    if (graph->workspace_bytes() <= parts.bytes) continue;
    plan.why = TooMuch(graph->workspace_bytes(), parts.bytes);
    return false;
  }
  const auto rows = static_cast<size_t>(heads.batch * heads.heads * heads.sequence);
  plan.forward_bytes = plan.forward->workspace_bytes() + kDnnAlignment;
  plan.backward_bytes = RoundUpTo(rows * sizeof(float), kDnnAlignment) +
                        plan.backward->workspace_bytes() + kDnnAlignment;
  plan.test_bytes =
      AttentionTestBytes(shape, plan.parts) + std::max(plan.forward_bytes, plan.backward_bytes);
  return true;
}

Status AttentionLibrary::Forward(const AttentionShape& shape, AttentionPlan& plan,
                                 const BFloat16* q, const BFloat16* k, const BFloat16* v,
                                 BFloat16* out, float* lse, void* workspace, CudaStream stream) {
  ScalarTensors numbers(shape.scale);
  const bool queued = ForEachPart(shape, plan.parts, [&](const PartPlace& at) {
    const std::pair<int64_t, void*> tensors[] = {
        {kAttentionQ, Place(q, at.query)},   {kAttentionK, Place(k, at.key)},
        {kAttentionV, Place(v, at.key)},     {kAttentionOut, Place(out, at.query)},
        {kAttentionLse, Place(lse, at.row)}, {kAttentionScale, &numbers.scale},
        {kAttentionMasked, &numbers.masked}};
    return plan.forward->Run(handle_, tensors, Aligned(workspace), stream, &refusal_);
  });
  return queued ? Status::kOk : Status::kUnsupported;
}

Status AttentionLibrary::Backward(const AttentionShape& shape, AttentionPlan& plan,
                                  const AttentionSaved<BFloat16>& saved, const Gradients& gradients,
                                  void* workspace, CudaStream stream) {
  ScalarTensors numbers(shape.scale);
  std::byte* const row_sums = Aligned(workspace);
  const auto heads = HeadsOf(shape, plan.parts);
  const auto rows = static_cast<size_t>(heads.batch * heads.heads * heads.sequence);
  std::byte* const rest = row_sums + RoundUpTo(rows * sizeof(float), kDnnAlignment);
  const bool queued = ForEachPart(shape, plan.parts, [&](const PartPlace& at) {
    const std::pair<int64_t, void*> tensors[] = {{kAttentionQ, Place(saved.q.data, at.query)},
                                                 {kAttentionK, Place(saved.k.data, at.key)},
                                                 {kAttentionV, Place(saved.v.data, at.key)},
                                                 {kAttentionOut, Place(saved.out.data, at.query)},
                                                 {kAttentionDout, Place(saved.dout.data, at.query)},
                                                 {kAttentionLse, Place(saved.lse, at.row)},
                                                 {kAttentionDq, Place(gradients.dq, at.query)},
                                                 {kAttentionDk, Place(gradients.dk, at.key)},
                                                 {kAttentionDv, Place(gradients.dv, at.key)},
                                                 {kAttentionRowSums, row_sums},
                                                 {kAttentionScale, &numbers.scale},
                                                 {kAttentionMasked, &numbers.masked},
                                                 {kAttentionOne, &numbers.one}};
    return plan.backward->Run(handle_, tensors, rest, stream, &refusal_);
  });
  return queued ? Status::kOk : Status::kUnsupported;
}

}  // namespace geminid::kernels
