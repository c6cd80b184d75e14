// AttentionLibrary::Test: the test that a library's attention must pass before it is used.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gpu/driver_api.h"
#include "gpu/driver_calls.h"
#include "kernels/model/attention/attention_cuda.h"
#include "kernels/model/attention/attention_library_cuda.h"
#include "kernels/runtime/cuda/launcher.h"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {
namespace {

constexpr int kRepetitions = 10;
constexpr size_t kBlock = 64;  // tokens
// The largest distance, relative to the root of the mean square of a block. Rounding probabilities,
// gradients of scores and results to bf16 causes about 1/300. A wrong mask or scale causes more
// than 1/10.
constexpr double kMostOfBlock = 1.0 / 64;
// The largest distance of one value, relative to the value plus the root of its block.
constexpr double kMostOfValue = 1.0 / 16;
constexpr double kMostOfLse = 1.0 / 1024;
constexpr int kUnwritten = 0xff;  // each byte of a result before the pass: a NaN

// The results of one part, on the host.
struct Results {
  std::vector<BFloat16> out, dq, dk, dv;
  std::vector<float> lse;

  friend bool operator==(const Results& a, const Results& b) {
    return a.out == b.out && a.dq == b.dq && a.dk == b.dk && a.dv == b.dv &&
           std::memcmp(a.lse.data(), b.lse.data(), a.lse.size() * sizeof(float)) == 0;
  }
};

// Values in [-2, 2], the same on each run.
std::vector<BFloat16> Numbers(size_t count, uint64_t seed) {
  std::vector<BFloat16> numbers(count);
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (BFloat16& number : numbers) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const auto bits = static_cast<float>(state >> 40);  // 24
    number = BFloat16::FromFloat(bits * 0x1p-22F - 2.0F);
  }
  return numbers;
}

// The test data: the sequences of one part with all their heads, in device memory.
class Trial {
 public:
  Trial(const gpu::DriverApi& api, const AttentionShape& shape, const AttentionParts& parts,
        void* workspace, CudaStream stream)
      : api_(api), shape_(shape), stream_(stream), next_(static_cast<std::byte*>(workspace)) {
    shape_.batch = parts.batch;
    for (BFloat16** tensor : {&q_, &dout_, &out_, &dq_}) *tensor = Take<BFloat16>(queries());
    for (BFloat16** tensor : {&k_, &v_, &dk_, &dv_}) *tensor = Take<BFloat16>(keys());
    lse_ = Take<float>(rows());
    rest_ = Take<std::byte>(0);
  }

  const AttentionShape& shape() const { return shape_; }
  const std::string& error() const { return error_; }

  bool UploadInputs() {
    return Upload(queries(), 1, q_) && Upload(keys(), 2, k_) && Upload(keys(), 3, v_) &&
           Upload(queries(), 4, dout_);
  }
  bool ClearResults() {
    return Clear(out_, queries()) && Clear(dq_, queries()) && Clear(dk_, keys()) &&
           Clear(dv_, keys()) && Clear(lse_, rows());
  }
  bool Download(Results* results) {
    return Get(out_, queries(), &results->out) && Get(dq_, queries(), &results->dq) &&
           Get(dk_, keys(), &results->dk) && Get(dv_, keys(), &results->dv) &&
           Get(lse_, rows(), &results->lse) && Wait();
  }

  bool Wait() { return Check(api_.stream_synchronize(stream_), "cuStreamSynchronize"); }

  Status ByOurs() {
    const Status status =
        AttentionForwardCuda<BFloat16>(shape_, Heads(q_, shape_.heads), Keys(k_), Keys(v_),
                                       View(out_, shape_.heads), lse_, stream_);
    if (status != Status::kOk) return status;
    return AttentionBackwardCuda<BFloat16>(shape_, Saved(), View(dq_, shape_.heads),
                                           View(dk_, shape_.kv_heads), View(dv_, shape_.kv_heads),
                                           rest_, AttentionCudaWorkspaceBytes(shape_), stream_);
  }
  Status ByLibrary(AttentionLibrary& library, AttentionPlan& plan) {
    const Status status = library.Forward(shape_, plan, q_, k_, v_, out_, lse_, rest_, stream_);
    if (status != Status::kOk) return status;
    return library.Backward(shape_, plan, Saved(), {.dq = dq_, .dk = dk_, .dv = dv_}, rest_,
                            stream_);
  }

 private:
  size_t tokens() const { return shape_.batch * shape_.sequence; }
  size_t rows() const { return tokens() * shape_.heads; }
  size_t queries() const { return rows() * shape_.head_dim; }
  size_t keys() const { return tokens() * shape_.kv_heads * shape_.head_dim; }

  template <typename T>
  T* Take(size_t count) {
    next_ += RoundUpTo(reinterpret_cast<uintptr_t>(next_), kWorkspaceAlignment) -
             reinterpret_cast<uintptr_t>(next_);
    auto* const taken = reinterpret_cast<T*>(next_);
    next_ += count * sizeof(T);
    return taken;
  }
  HeadsView<BFloat16> View(BFloat16* data, size_t heads) const {
    return {.data = data, .token_stride = heads * shape_.head_dim};
  }
  HeadsView<const BFloat16> Heads(const BFloat16* data, size_t heads) const {
    return {.data = data, .token_stride = heads * shape_.head_dim};
  }
  HeadsView<const BFloat16> Keys(const BFloat16* data) const {
    return Heads(data, shape_.kv_heads);
  }
  AttentionSaved<BFloat16> Saved() const {
    return {.q = Heads(q_, shape_.heads),
            .k = Keys(k_),
            .v = Keys(v_),
            .out = Heads(out_, shape_.heads),
            .dout = Heads(dout_, shape_.heads),
            .lse = lse_};
  }

  bool Check(CUresult result, const char* call) {
    if (result == CUDA_SUCCESS) return true;
    error_ = std::string(call) + ": " + gpu::DescribeError(api_, result);
    return false;
  }
  bool Upload(size_t count, uint64_t seed, BFloat16* to) {
    const std::vector<BFloat16> numbers = Numbers(count, seed);
    return Check(api_.memcpy_htod_async(reinterpret_cast<CUdeviceptr>(to), numbers.data(),
                                        count * sizeof(BFloat16), stream_),
                 "cuMemcpyHtoDAsync") &&
           Wait();  // the copy must end before `numbers` does
  }
  template <typename T>
  bool Clear(T* data, size_t count) {
    return Check(api_.memset_d8_async(reinterpret_cast<CUdeviceptr>(data), kUnwritten,
                                      count * sizeof(T), stream_),
                 "cuMemsetD8Async");
  }
  template <typename T>
  bool Get(const T* from, size_t count, std::vector<T>* to) {
    to->resize(count);
    return Check(api_.memcpy_dtoh_async(to->data(), reinterpret_cast<CUdeviceptr>(from),
                                        count * sizeof(T), stream_),
                 "cuMemcpyDtoHAsync");
  }

  const gpu::DriverApi& api_;
  AttentionShape shape_;
  CudaStream stream_;
  std::byte* next_;
  BFloat16 *q_ = nullptr, *k_ = nullptr, *v_ = nullptr, *dout_ = nullptr;
  BFloat16 *out_ = nullptr, *dq_ = nullptr, *dk_ = nullptr, *dv_ = nullptr;
  float* lse_ = nullptr;
  std::byte* rest_ = nullptr;
  std::string error_;
};

// A block of tokens of one head in a tensor [tokens, heads, head_dim].
struct Block {
  size_t first = 0;
  size_t tokens = 0;
  size_t stride = 0;
  size_t width = 0;

  template <class Work>
  void ForEach(const Work& work) const {
    for (size_t token = 0; token < tokens; ++token) {
      for (size_t i = 0; i < width; ++i) work(first + token * stride + i);
    }
  }
};

// The distance of a block, or infinity if one value alone is too far away.
double DistanceOf(const Block& block, const std::vector<BFloat16>& theirs,
                  const std::vector<BFloat16>& ours) {
  double squares = 0, differences = 0;
  block.ForEach([&](size_t i) {
    const double own = ours[i].ToFloat();
    const double difference = theirs[i].ToFloat() - own;
    squares += own * own;
    differences += difference * difference;
  });
  const double root = std::sqrt(squares / static_cast<double>(block.tokens * block.width));
  bool all_near = std::isfinite(differences);
  block.ForEach([&](size_t i) {
    const double own = ours[i].ToFloat();
    all_near =
        all_near && std::abs(theirs[i].ToFloat() - own) <= kMostOfValue * (std::abs(own) + root);
  });
  if (!all_near) return std::numeric_limits<double>::infinity();
  return differences == 0 ? 0 : std::sqrt(differences / squares);
}

double DistanceOf(const AttentionShape& shape, size_t heads, const std::vector<BFloat16>& theirs,
                  const std::vector<BFloat16>& ours) {
  double most = 0;
  for (size_t batch = 0; batch < shape.batch; ++batch) {
    for (size_t head = 0; head < heads; ++head) {
      for (size_t token = 0; token < shape.sequence; token += kBlock) {
        const size_t stride = heads * shape.head_dim;
        const Block block = {
            .first = (batch * shape.sequence + token) * stride + head * shape.head_dim,
            .tokens = std::min(kBlock, shape.sequence - token),
            .stride = stride,
            .width = shape.head_dim};
        most = std::max(most, DistanceOf(block, theirs, ours));
      }
    }
  }
  return most;
}

AttentionDistances DistancesOf(const AttentionShape& shape, const Results& theirs,
                               const Results& ours) {
  AttentionDistances all = {.out = DistanceOf(shape, shape.heads, theirs.out, ours.out),
                            .dq = DistanceOf(shape, shape.heads, theirs.dq, ours.dq),
                            .dk = DistanceOf(shape, shape.kv_heads, theirs.dk, ours.dk),
                            .dv = DistanceOf(shape, shape.kv_heads, theirs.dv, ours.dv)};
  for (size_t i = 0; i < ours.lse.size(); ++i) {
    const double difference = std::abs(static_cast<double>(theirs.lse[i]) - ours.lse[i]);
    // std::max would skip a NaN.
    if (!(difference <= all.lse)) all.lse = difference;
    if (std::isnan(all.lse)) break;
  }
  return all;
}

// The first result that is too far away; empty: all results are near.
std::string WhatIsFar(const AttentionDistances& d) {
  struct Distance {
    const char* name;
    double value;
    double most;
  };
  // Each result follows those from which it is computed.
  for (const Distance& one : {Distance{"out", d.out, kMostOfBlock},
                              {"log-sum-exp", d.lse, kMostOfLse},
                              {"dq", d.dq, kMostOfBlock},
                              {"dk", d.dk, kMostOfBlock},
                              {"dv", d.dv, kMostOfBlock}}) {
    if (one.value <= one.most) continue;  // false for a NaN
    return std::string("its ") + one.name + " is " + std::to_string(one.value) +
           " from that of the kernel of our own, and " + std::to_string(one.most) + " is allowed";
  }
  return "";
}

}  // namespace

Status AttentionLibrary::Test(const AttentionShape& shape, AttentionPlan& plan, void* workspace,
                              CudaStream stream, std::string* why) {
  if (plan.state != AttentionPlan::State::kUntested) return Status::kOk;
  const gpu::DriverCall call;
  const gpu::DriverApi* const api = gpu::ProcessDriver(why);
  if (api == nullptr) return Status::kUnsupported;
  Trial trial(*api, shape, plan.parts, workspace, stream);
  const auto failed = [&] {
    *why = "testing the attention of " + Name() + ": " + trial.error();
    return Status::kUnsupported;
  };
  const auto refused = [&](std::string text) {
    plan.state = AttentionPlan::State::kRefused;
    plan.why = std::move(text);
    return Status::kOk;
  };
  Results ours, first, again;
  if (!trial.UploadInputs()) return failed();
  if (const Status status = trial.ByOurs(); status != Status::kOk) {
    *why = "the kernel of our own was refused: " + cuda::LastRefusal();
    return status;
  }
  if (!trial.Download(&ours)) return failed();
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    Results& results = repetition == 0 ? first : again;
    if (!trial.ClearResults()) return failed();
    if (trial.ByLibrary(*this, plan) != Status::kOk) {
      return trial.Wait() ? refused(refusal_) : failed();  // one of the two passes may be queued
    }
    if (!trial.Download(&results)) return failed();
    if (repetition > 0 && !(again == first)) return refused("two runs of it had different bits");
  }
  plan.distances = DistancesOf(trial.shape(), first, ours);
  if (std::string far = WhatIsFar(plan.distances); !far.empty()) return refused(std::move(far));
  plan.state = AttentionPlan::State::kTaken;
  return Status::kOk;
}

}  // namespace geminid::kernels
