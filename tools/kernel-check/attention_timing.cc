#include "tools/kernel-check/attention_timing.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>

#include "kernels/model/attention/attention_cuda.h"
#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/cuda/launcher.h"
#include "tools/kernel-check/device.h"
#include "tools/kernel-check/timed_products.h"

namespace geminid::kernel_check {
namespace {

using kernels::AttentionLibrary;
using kernels::AttentionPlan;
using kernels::AttentionShape;
using kernels::BFloat16;
using kernels::Status;

constexpr int kPasses = 5;

TimedAttention Attention(size_t batch, size_t sequence, size_t heads, size_t kv_heads,
                         size_t head_dim) {
  std::string name = "attention by cuDNN, bf16, " + std::to_string(batch) + " x " +
                     std::to_string(sequence) + " tokens, " + std::to_string(heads) + " heads of " +
                     std::to_string(head_dim);
  if (kv_heads < heads) name += " on " + std::to_string(kv_heads);
  return {.name = std::move(name),
          .shape = {.batch = batch,
                    .sequence = sequence,
                    .heads = heads,
                    .kv_heads = kv_heads,
                    .head_dim = head_dim,
                    .scale = 1 / std::sqrt(static_cast<float>(head_dim))}};
}

// Both passes on tensors of one shape, by the library or by our kernel.
class Passes {
 public:
  explicit Passes(const AttentionShape& shape)
      : shape_(shape),
        queries_(shape.batch * shape.sequence * shape.heads * shape.head_dim),
        keys_(queries_ / shape.heads * shape.kv_heads),
        memory_((4 * queries_ + 4 * keys_) * sizeof(BFloat16)),
        lse_(shape.batch * shape.sequence * shape.heads * sizeof(float)) {}

  bool ok() { return memory_ && lse_ && CudaFill(&memory_, 0); }

  bool ByLibrary(AttentionLibrary& library, AttentionPlan& plan, void* workspace) {
    return library.Forward(shape_, plan, At(0, 0), At(2, 0), At(2, 1), At(1, 0), lse(), workspace,
                           nullptr) == Status::kOk &&
           library.Backward(shape_, plan, Saved(), {.dq = At(4, 2), .dk = At(2, 2), .dv = At(2, 3)},
                            workspace, nullptr) == Status::kOk;
  }
  bool ByOurs(void* workspace) {
    const auto saved = Saved();
    return kernels::AttentionForwardCuda<BFloat16>(shape_, saved.q, saved.k, saved.v,
                                                   View(At(1, 0), shape_.heads), lse(),
                                                   nullptr) == Status::kOk &&
           kernels::AttentionBackwardCuda<BFloat16>(
               shape_, saved, View(At(3, 4), shape_.heads), View(At(2, 2), shape_.kv_heads),
               View(At(2, 3), shape_.kv_heads), workspace,
               kernels::AttentionCudaWorkspaceBytes(shape_), nullptr) == Status::kOk;
  }

 private:
  // The tensor behind `queries` tensors of query size and `keys` tensors of key size.
  BFloat16* At(size_t queries, size_t keys) const {
    return memory_.as<BFloat16>() + queries * queries_ + keys * keys_;
  }
  float* lse() const { return lse_.as<float>(); }
  kernels::HeadsView<BFloat16> View(BFloat16* data, size_t heads) const {
    return {.data = data, .token_stride = heads * shape_.head_dim};
  }
  kernels::HeadsView<const BFloat16> Read(const BFloat16* data, size_t heads) const {
    return {.data = data, .token_stride = heads * shape_.head_dim};
  }
  kernels::AttentionSaved<BFloat16> Saved() const {
    return {.q = Read(At(0, 0), shape_.heads),
            .k = Read(At(2, 0), shape_.kv_heads),
            .v = Read(At(2, 1), shape_.kv_heads),
            .out = Read(At(1, 0), shape_.heads),
            .dout = Read(At(0, 0), shape_.heads),
            .lse = lse()};
  }

  const AttentionShape shape_;
  const size_t queries_;
  const size_t keys_;
  CudaBuffer memory_;
  CudaBuffer lse_;
};

// The seconds of one call, once warm; 0 if a call was refused.
double SecondsOf(const std::function<bool()>& queue) {
  if (!queue()) return 0;
  CudaTimer timer;
  timer.Start();
  for (int i = 0; i < kPasses; ++i) {
    if (!queue()) return 0;
  }
  return timer.StopSeconds() / kPasses;
}

AttentionTiming Time(const TimedAttention& attention, AttentionLibrary& library) {
  AttentionTiming timing;
  timing.attention = attention;
  const AttentionShape& shape = attention.shape;
  AttentionPlan& plan = library.Plan(shape);
  const CudaBuffer workspace(
      std::max({plan.test_bytes, kernels::AttentionCudaWorkspaceBytes(shape), size_t{1}}));
  Passes passes(shape);
  if (!workspace || !passes.ok()) {
    timing.detail = "the device has too little free memory for this shape";
    return timing;
  }
  const Status tested = library.Test(shape, plan, workspace.data(), nullptr, &timing.detail);
  if (tested != Status::kOk) {
    if (timing.detail.empty()) timing.detail = kernels::cuda::LastRefusal();
    return timing;
  }
  timing.passed = true;
  timing.taken = plan.state == AttentionPlan::State::kTaken;
  timing.workspace_bytes = plan.backward_bytes;
  timing.distances = plan.distances;
  timing.own_seconds = SecondsOf([&] { return passes.ByOurs(workspace.data()); });
  if (timing.taken) {
    timing.library_seconds =
        SecondsOf([&] { return passes.ByLibrary(library, plan, workspace.data()); });
  } else {
    timing.detail = plan.why;
  }
  std::string reason;
  if (!CudaWait(&reason)) {
    timing.passed = false;
    timing.detail = reason;
  }
  return timing;
}

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

}  // namespace

std::vector<TimedAttention> TimedAttentions(size_t most_tokens) {
  if (most_tokens > 0) {
    return {Attention(1, most_tokens, 2, 2, 16), Attention(1, most_tokens, 4, 2, 8)};
  }
  return {Attention(8, 1024, 12, 12, 64),   // GPT-2
          Attention(4, 1024, 25, 25, 64),   // GPT-2 XL
          Attention(2, 2048, 32, 32, 128),  // LLaMA of 7 billion parameters
          Attention(1, 4096, 32, 8, 128)};  // LLaMA 3 of 8 billion
}

AttentionTimings TimeAttention(const std::vector<TimedAttention>& attentions) {
  AttentionTimings all;
  const std::unique_ptr<AttentionLibrary> library = AttentionLibrary::Load(&all.library);
  if (library == nullptr) return all;
  all.library = library->Name();
  for (const TimedAttention& one : attentions) all.timings.push_back(Time(one, *library));
  return all;
}

std::string AttentionLine(const AttentionTiming& timing) {
  std::string line = Format("%-68s %s", timing.attention.name.c_str(),
                            !timing.passed ? "FAIL"
                            : timing.taken ? "taken"
                                           : "refused");
  if (timing.library_seconds > 0 && timing.own_seconds > 0) {
    line +=
        Format("  %.3f ms, %.2f ms by our kernel, %.1f times as fast", 1e3 * timing.library_seconds,
               1e3 * timing.own_seconds, timing.own_seconds / timing.library_seconds);
  }
  return timing.detail.empty() ? line : line + "  " + timing.detail;
}

std::string AttentionJson(const AttentionTiming& timing) {
  const kernels::AttentionDistances& d = timing.distances;
  return "{\"name\": " + JsonString(timing.attention.name) +
         Format(", \"taken\": %s, \"passed\": %s, \"workspace_bytes\": %zu",
                timing.taken ? "true" : "false", timing.passed ? "true" : "false",
                timing.workspace_bytes) +
         Format(", \"library_seconds\": %.6g, \"own_seconds\": %.6g", timing.library_seconds,
                timing.own_seconds) +
         Format(
             ", \"distances\": {\"out\": %.4g, \"dq\": %.4g, \"dk\": %.4g, \"dv\": %.4g, "
             "\"lse\": %.4g}",
             d.out, d.dq, d.dk, d.dv, d.lse) +
         ", \"detail\": " + JsonString(timing.detail) + "}";
}

}  // namespace geminid::kernel_check
