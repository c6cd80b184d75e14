#include <cmath>
#include <memory>
#include <vector>

#include "kernels/model/attention/attention.h"
#include "kernels/model/attention/attention_cuda.h"
#include "kernels/model/attention/merge_attention.h"
#include "kernels/model/attention/merge_attention_cuda.h"
#include "kernels/runtime/simd/arguments.h"
#include "tools/kernel-check/trial.h"

namespace geminid::kernel_check {
namespace {

using kernels::AttentionShape;
using kernels::BFloat16;
using kernels::HeadsView;

// For a logarithm of another library, rounded to fp32.
constexpr double kLogarithmTolerance = 1e-6;

AttentionShape ShapeOf(size_t batch, size_t sequence, size_t heads, size_t kv_heads,
                       size_t head_dim) {
  return {batch,    sequence, heads,
          kv_heads, head_dim, 1.0F / std::sqrt(static_cast<float>(head_dim))};
}

// Less than a block, whole blocks, a partial last one; groups of heads; heads of an odd size, of
// more than one slice, of more than one slab. Windows of less than a block, and of more. Attention
// without a causal mask.
std::vector<AttentionShape> ComparedShapes() {
  std::vector<AttentionShape> shapes = {ShapeOf(1, 1, 1, 1, 1),    ShapeOf(2, 9, 2, 1, 20),
                                        ShapeOf(1, 130, 2, 2, 64), ShapeOf(1, 70, 4, 2, 80),
                                        ShapeOf(1, 65, 1, 1, 200), ShapeOf(1, 200, 2, 1, 20),
                                        ShapeOf(1, 150, 1, 1, 80)};
  shapes[shapes.size() - 2].window = 5;
  shapes.back().window = 70;
  for (const AttentionShape& whole : {ShapeOf(2, 70, 4, 2, 20), ShapeOf(1, 130, 1, 1, 80)}) {
    shapes.push_back(whole);
    shapes.back().causal = false;
  }
  return shapes;
}
// After cached tokens: only the last token, some within a block, and from a block's first on.
std::vector<AttentionShape> RememberingShapes() {
  std::vector<AttentionShape> shapes = {ShapeOf(2, 130, 4, 2, 20), ShapeOf(1, 200, 2, 1, 80),
                                        ShapeOf(2, 70, 2, 2, 64), ShapeOf(1, 2, 1, 1, 200),
                                        ShapeOf(1, 150, 2, 1, 20)};
  shapes.back().window = 70;
  const size_t first_queries[] = {129, 70, 64, 1, 140};
  for (size_t i = 0; i < shapes.size(); ++i) shapes[i].first_query = first_queries[i];
  return shapes;
}
AttentionShape TimedShape() { return ShapeOf(4, 2048, 16, 16, 128); }

// Multiplications and additions of one product over all pairs of a query and an earlier key.
double ProductOperations(const AttentionShape& s) {
  const size_t pairs = s.sequence * s.sequence - s.first_query * s.first_query;
  return static_cast<double>(s.batch * s.heads * pairs * s.head_dim);
}

// q, k and v side by side, as a fused projection leaves them.
template <typename T>
struct Fused {
  T* data;
  size_t stride;
  size_t key_at;
  size_t value_at;

  Fused(T* first, const AttentionShape& s)
      : data(first),
        stride((s.heads + 2 * s.kv_heads) * s.head_dim),
        key_at(s.heads * s.head_dim),
        value_at((s.heads + s.kv_heads) * s.head_dim) {}
  HeadsView<T> Queries() const { return {data, stride}; }
  HeadsView<T> Keys() const { return {data + key_at, stride}; }
  HeadsView<T> Values() const { return {data + value_at, stride}; }
};

size_t FusedCount(const AttentionShape& s) {
  return s.batch * s.sequence * (s.heads + 2 * s.kv_heads) * s.head_dim;
}

struct HostWorkspace {
  explicit HostWorkspace(const AttentionShape& shape)
      : size(kernels::AttentionWorkspaceBytes(shape)), bytes(size + kernels::kWorkspaceAlignment) {}
  void* data() {
    void* at = bytes.data();
    size_t space = bytes.size();
    return std::align(kernels::kWorkspaceAlignment, size, at, space);
  }

  size_t size;
  std::vector<std::byte> bytes;
};

template <typename T>
void CheckForward(Trial& trial, const AttentionShape& s) {
  const size_t width = s.heads * s.head_dim;
  const auto qkv = trial.In(RandomArray<T>(FusedCount(s), 1, 2.0F));
  const auto out = trial.Out("out", std::vector<T>(s.batch * s.queries() * width));
  const auto lse =
      trial.Out("lse", std::vector<float>(s.batch * s.heads * s.queries()), 0, kLogarithmTolerance);
  const Fused<const T> on_host(qkv.host, s);
  const Fused<const T> on_device(qkv.device, s);
  HostWorkspace workspace(s);
  trial.Computes(2 * ProductOperations(s));
  trial.Run(
      [&] {
        return kernels::AttentionForward<T>(s, on_host.Queries(), on_host.Keys(), on_host.Values(),
                                            {out.host, width}, lse.host, workspace.data(),
                                            workspace.size);
      },
      [&] {
        return kernels::AttentionForwardCuda<T>(s, on_device.Queries(), on_device.Keys(),
                                                on_device.Values(), {out.device, width}, lse.device,
                                                nullptr);
      });
}

template <typename T>
void CheckBackward(Trial& trial, const AttentionShape& s) {
  const size_t width = s.heads * s.head_dim;
  const size_t count = s.batch * s.sequence * width;
  std::vector<T> qkv_values = RandomArray<T>(FusedCount(s), 2, 2.0F);
  std::vector<T> out_values(count);
  std::vector<float> lse_values(s.batch * s.heads * s.sequence, 1.0F);
  HostWorkspace workspace(s);
  if (!trial.timed()) {  // the backward pass of the forward pass's result
    const Fused<const T> fused(qkv_values.data(), s);
    const kernels::Status status = kernels::AttentionForward<T>(
        s, fused.Queries(), fused.Keys(), fused.Values(), {out_values.data(), width},
        lse_values.data(), workspace.data(), workspace.size);
    trial.Expect(status == kernels::Status::kOk, "the forward pass failed");
  }
  const auto qkv = trial.In(std::move(qkv_values));
  const auto out = trial.In(std::move(out_values));
  const auto lse = trial.In(std::move(lse_values));
  const auto dout = trial.In(RandomArray<T>(count, 3));
  const auto gradient = trial.Out("gradient", std::vector<T>(FusedCount(s)));
  const size_t bytes = kernels::AttentionCudaWorkspaceBytes(s);
  void* const device_workspace = trial.Workspace(bytes);
  const auto saved = [&](const T* fused, const T* result, const T* above, const float* row_lse) {
    const Fused<const T> read(fused, s);
    return kernels::AttentionSaved<T>{read.Queries(),  read.Keys(),    read.Values(),
                                      {result, width}, {above, width}, row_lse};
  };
  const Fused<T> on_host(gradient.host, s);
  const Fused<T> on_device(gradient.device, s);
  trial.Computes(5 * ProductOperations(s));
  trial.Run(
      [&] {
        return kernels::AttentionBackward<T>(s, saved(qkv.host, out.host, dout.host, lse.host),
                                             on_host.Queries(), on_host.Keys(), on_host.Values(),
                                             workspace.data(), workspace.size);
      },
      [&] {
        return kernels::AttentionBackwardCuda<T>(
            s, saved(qkv.device, out.device, dout.device, lse.device), on_device.Queries(),
            on_device.Keys(), on_device.Values(), device_workspace, bytes, nullptr);
      });
}

// Of the queries of one batch entry.
void CheckMerge(Trial& trial, const AttentionShape& s) {
  const size_t rows = s.sequence * s.heads;
  const auto other = trial.In(RandomArray<float>(rows * s.head_dim, 5));
  const auto other_lse = trial.In(RandomArray<float>(rows, 6, 4.0F));
  const auto out =
      trial.Out("out", RandomArray<float>(rows * s.head_dim, 7), 0, kLogarithmTolerance, 2);
  const auto lse = trial.Out("lse", RandomArray<float>(rows, 8, 4.0F), 0, kLogarithmTolerance, 2);
  const kernels::MergeShape shape = {s.sequence, s.heads, s.head_dim};
  trial.Run(
      [&] {
        return kernels::MergeAttention(shape, other.host, other_lse.host, out.host, lse.host);
      },
      [&] {
        return kernels::MergeAttentionCuda(shape, other.device, other_lse.device, out.device,
                                           lse.device, nullptr);
      });
}

KernelCase OverShapes(const char* name, void (*check)(Trial&, const AttentionShape&),
                      const std::vector<AttentionShape>& shapes, const AttentionShape& timed) {
  KernelCase one;
  one.name = name;
  for (const AttentionShape& shape : shapes) {
    one.compared.emplace_back([check, shape](Trial& trial) { check(trial, shape); });
  }
  one.timed = [check, timed](Trial& trial) { check(trial, timed); };
  return one;
}

KernelCase OverShapes(const char* name, void (*check)(Trial&, const AttentionShape&)) {
  return OverShapes(name, check, ComparedShapes(), TimedShape());
}

KernelCase Remembering(const char* name, void (*check)(Trial&, const AttentionShape&)) {
  AttentionShape timed = TimedShape();
  timed.first_query = timed.sequence - 1;
  return OverShapes(name, check, RememberingShapes(), timed);
}

}  // namespace

std::vector<KernelCase> AttentionCases() {
  return {OverShapes("attention, fp32", CheckForward<float>),
          OverShapes("attention, bf16", CheckForward<BFloat16>),
          Remembering("attention to earlier tokens, fp32", CheckForward<float>),
          Remembering("attention to earlier tokens, bf16", CheckForward<BFloat16>),
          OverShapes("attention backward, fp32", CheckBackward<float>),
          OverShapes("attention backward, bf16", CheckBackward<BFloat16>),
          OverShapes("merge of attention", CheckMerge)};
}

}  // namespace geminid::kernel_check
