// Attention by cuDNN on the double, which computes the graph operation by operation. A plan is
// accepted if its results are right, and refused if they are not.
#include "kernels/model/attention/attention_library_cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): setenv

#include <cmath>
#include <string>
#include <vector>

#include "gpu/driver_api.h"
#include "gpu/library_search.h"
#include "kernels/model/attention/attention_cuda.h"
#include "kernels/model/attention/attention_graph_cuda.h"
#include "tests/gpu/double/node.h"

namespace geminid::kernels {
namespace {

using ::testing::HasSubstr;
using State = AttentionPlan::State;

constexpr uint64_t kMemoryBytes = uint64_t{64} << 20;
// The offset of the workspace in the memory.
constexpr uint64_t kTestBytesAt = uint64_t{32} << 20;

// A process has one driver, so all tests share one context.
class Device {
 public:
  static Device& Get() {
    static auto* const device = new Device;
    return *device;
  }
  const gpu::DriverApi& api() const { return *api_; }
  CUstream stream() const { return stream_; }
  std::byte* memory() const { return reinterpret_cast<std::byte*>(memory_); }
  void* workspace() const { return memory() + kTestBytesAt; }
  gpu_double::Node& node() { return node_; }

 private:
  Device() {
    std::string error;
    api_ = gpu::ProcessDriver(&error);
    EXPECT_NE(api_, nullptr) << error;
    EXPECT_EQ(api_->primary_ctx_retain(&context_, 0), CUDA_SUCCESS);
    EXPECT_EQ(api_->ctx_set_current(context_), CUDA_SUCCESS);
    EXPECT_EQ(api_->stream_create(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(api_->mem_alloc(&memory_, kMemoryBytes), CUDA_SUCCESS);
  }
  gpu_double::Node node_{{.libcuda = GEMINID_CUDA_DOUBLE,
                          .libnvml = GEMINID_NVML_DOUBLE,
                          .kernels = GEMINID_DOUBLE_KERNELS,
                          .libcudnn = GEMINID_CUDNN_DOUBLE}};
  const gpu::DriverApi* api_ = nullptr;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr memory_ = 0;
};

AttentionShape Shape(size_t batch, size_t sequence, size_t heads, size_t kv_heads,
                     size_t head_dim) {
  return {.batch = batch,
          .sequence = sequence,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .scale = 1 / std::sqrt(static_cast<float>(head_dim))};
}

class AttentionLibraryTest : public ::testing::Test {
 protected:
  AttentionLibraryTest() : node_(Device::Get().node()) {
    std::string error;
    library_ = AttentionLibrary::Load(&error);
    EXPECT_NE(library_, nullptr) << error;
  }
  ~AttentionLibraryTest() override {
    node_.ClearFaults();
    node_.SetAttentionWrong(0);
    node_.SetAttentionDrifting(0);
    node_.SetAttentionWorkspaceFactor(1);
    node_.SetAttentionSaysNondeterministic(false);
    setenv(gpu::kCudnnPathVariable, GEMINID_CUDNN_DOUBLE, 1);
  }

  // Plans the shape and tests the plan.
  AttentionPlan& Tested(const AttentionShape& shape) {
    AttentionPlan& plan = library_->Plan(shape);
    std::string why;
    if (plan.state == State::kUntested) {
      EXPECT_LE(plan.test_bytes, kMemoryBytes - kTestBytesAt);
      EXPECT_EQ(
          library_->Test(shape, plan, Device::Get().workspace(), Device::Get().stream(), &why),
          Status::kOk)
          << why;
    }
    return plan;
  }
  void ExpectTaken(const AttentionShape& shape) {
    const AttentionPlan& plan = Tested(shape);
    EXPECT_EQ(plan.state, State::kTaken) << plan.why;
    const AttentionDistances& d = plan.distances;
    for (const double distance : {d.out, d.dq, d.dk, d.dv}) {
      EXPECT_GT(distance, 0);
      EXPECT_LT(distance, 1.0 / 128);
    }
  }
  void ExpectRefused(const AttentionShape& shape, const std::string& why) {
    const AttentionPlan& plan = Tested(shape);
    EXPECT_EQ(plan.state, State::kRefused);
    EXPECT_THAT(plan.why, HasSubstr(why));
    EXPECT_THAT(library_->Describe(), HasSubstr(why));
  }
  std::string RefusalToLoad() {
    std::string error;
    EXPECT_EQ(AttentionLibrary::Load(&error), nullptr);
    return error;
  }

  gpu_double::Node& node_;
  std::unique_ptr<AttentionLibrary> library_;
};

TEST_F(AttentionLibraryTest, RightAttention_IsTakenForHeadsOfEverySize) {
  for (const size_t head_dim : {8u, 40u, 64u, 128u}) {
    SCOPED_TRACE(head_dim);
    ExpectTaken(Shape(2, 66, 1, 1, head_dim));
  }
}

TEST_F(AttentionLibraryTest, HeadsThatShareKeys_AreTaken) { ExpectTaken(Shape(1, 130, 4, 2, 16)); }

TEST_F(AttentionLibraryTest, Shape_IsPlannedAndTestedOnce) {
  const AttentionShape shape = Shape(1, 64, 2, 2, 16);
  EXPECT_EQ(library_->Plan(shape).state, State::kUntested);
  ExpectTaken(shape);
  const uint64_t passes = node_.calls("cudnnBackendExecute");
  ExpectTaken(shape);
  EXPECT_EQ(node_.calls("cudnnBackendExecute"), passes);
}

TEST_F(AttentionLibraryTest, AnyWrongResult_IsRefusedByName) {
  struct Case {
    AttentionTensor tensor;
    const char* name;
  };
  for (const Case& wrong : {Case{kAttentionOut, "its out is"}, Case{kAttentionDq, "its dq is"},
                            Case{kAttentionDk, "its dk is"}, Case{kAttentionDv, "its dv is"},
                            Case{kAttentionLse, "its log-sum-exp is"}}) {
    node_.SetAttentionWrong(wrong.tensor);
    std::string error;
    library_ = AttentionLibrary::Load(&error);
    ExpectRefused(Shape(1, 66, 2, 1, 16), wrong.name);
  }
}

TEST_F(AttentionLibraryTest, ResultThatDiffersFromRunToRun_IsRefused) {
  for (const AttentionTensor tensor : {kAttentionOut, kAttentionDq, kAttentionDk, kAttentionDv}) {
    node_.SetAttentionDrifting(tensor);
    std::string error;
    library_ = AttentionLibrary::Load(&error);
    ExpectRefused(Shape(1, 64, 2, 2, 16), "two runs of it had different bits");
  }
}

TEST_F(AttentionLibraryTest, EngineThatSaysItIsNotDeterministic_IsRefusedUntried) {
  node_.SetAttentionSaysNondeterministic(true);
  const uint64_t passes = node_.calls("cudnnBackendExecute");
  ExpectRefused(Shape(1, 64, 2, 2, 16), "engine 6 says that it is not deterministic");
  EXPECT_EQ(node_.calls("cudnnBackendExecute"), passes);
}

TEST_F(AttentionLibraryTest, MoreWorkspaceThanTheShapeAllows_IsRefused) {
  node_.SetAttentionWorkspaceFactor(2);
  ExpectRefused(Shape(1, 256, 2, 2, 16), "bytes of workspace, of which");
}

TEST_F(AttentionLibraryTest, ShapeThatNoEngineTakes_IsRefused) {
  ExpectRefused(Shape(1, 64, 2, 2, 12), "no multiple of 8 wide");
  ExpectRefused(Shape(1, 1, 2, 2, 16), "sequences are of one token");
  AttentionShape windowed = Shape(1, 64, 2, 2, 16);
  ExpectTaken(windowed);
  windowed.window = 64;
  ExpectRefused(windowed, "see a sliding window");
  ExpectRefused(Shape(1, 16384, 2, 2, 64), "bytes of workspace, of which 268435456 are allowed");
}

TEST_F(AttentionLibraryTest, ErrorOfEachCall_IsRefusedAndSaid) {
  constexpr int kFailed = static_cast<int>(gpu::DnnStatus::kExecutionFailed);
  for (const char* const call : {"cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
                                 "cudnnBackendFinalize", "cudnnBackendExecute", "cudnnSetStream"}) {
    SCOPED_TRACE(call);
    std::string error;
    library_ = AttentionLibrary::Load(&error);
    node_.FailLibrary(call, kFailed);
    ExpectRefused(Shape(1, 64, 2, 2, 16), "CUDNN_STATUS_EXECUTION_FAILED");
    node_.ClearFaults();
  }
  library_ = nullptr;
  std::string error;
  library_ = AttentionLibrary::Load(&error);
  node_.FailLibrary("cudnnBackendGetAttribute", kFailed, /*skips=*/0, /*times=*/1000);
  ExpectRefused(Shape(1, 64, 2, 2, 16), "no engine takes the graph");
}

// The second pass fails when it is queued for the first time.
TEST_F(AttentionLibraryTest, ErrorOfTheBackwardPass_IsRefused) {
  node_.FailLibrary("cudnnBackendExecute", static_cast<int>(gpu::DnnStatus::kInternalError),
                    /*skips=*/1);
  ExpectRefused(Shape(1, 64, 2, 2, 16), "cudnnBackendExecute: CUDNN_STATUS_INTERNAL_ERROR");
}

TEST_F(AttentionLibraryTest, MissingLibrary_IsNoneAndSaysSo) {
  setenv(gpu::kCudnnPathVariable, gpu::kNoLibrary, 1);
  EXPECT_EQ(RefusalToLoad(), "GEMINID_LIBCUDNN says none");
}

TEST_F(AttentionLibraryTest, LibraryThatLacksAFunction_IsNoneAndSaysWhich) {
  setenv(gpu::kCudnnPathVariable, GEMINID_LACKING_CUDNN_DOUBLE, 1);
  EXPECT_THAT(RefusalToLoad(), HasSubstr("lacks cudnnBackendExecute"));
}

TEST_F(AttentionLibraryTest, LibraryThatDoesNotStart_IsNoneAndSaysSo) {
  node_.FailLibrary("cudnnCreate", static_cast<int>(gpu::DnnStatus::kNotInitialized));
  EXPECT_THAT(RefusalToLoad(), HasSubstr("does not start: CUDNN_STATUS_NOT_INITIALIZED"));
}

TEST_F(AttentionLibraryTest, Name_HasVersionAndFile) {
  EXPECT_EQ(library_->Name(), std::string("cuDNN 9.19.0 (") + GEMINID_CUDNN_DOUBLE + ")");
}

// Compares parts of a batch, and of the heads of a sequence, with the whole.
TEST_F(AttentionLibraryTest, PartsOfAShape_HaveTheBitsOfTheWhole) {
  const AttentionShape shape = Shape(4, 40, 6, 2, 16);
  AttentionPlan& whole = library_->Plan(shape);
  ASSERT_EQ(whole.parts.batch, 4u);
  const size_t queries = shape.batch * shape.sequence * shape.heads * shape.head_dim;
  const size_t keys = queries / 3;
  Device& device = Device::Get();
  auto* next = reinterpret_cast<BFloat16*>(device.memory());
  const auto take = [&](size_t count) {
    BFloat16* const taken = next;
    next += count + 64 - count % 64;
    return taken;
  };
  BFloat16 *const q = take(queries), *const k = take(keys), *const v = take(keys);
  BFloat16* const dout = take(queries);
  for (const auto& [tensor, count] :
       {std::pair(q, queries), {k, keys}, {v, keys}, {dout, queries}}) {
    std::vector<BFloat16> values(count);
    for (size_t i = 0; i < count; ++i) {
      values[i] = BFloat16::FromFloat(static_cast<float>((i * 37 + count) % 101) / 50 - 1);
    }
    ASSERT_EQ(device.api().memcpy_htod_async(reinterpret_cast<CUdeviceptr>(tensor), values.data(),
                                             count * 2, device.stream()),
              CUDA_SUCCESS);
    ASSERT_EQ(device.api().stream_synchronize(device.stream()), CUDA_SUCCESS);
  }
  const size_t results = 2 * queries + 2 * keys + 4 * 64;  // lse lies behind them
  const auto run = [&](AttentionPlan& plan) {
    next = reinterpret_cast<BFloat16*>(device.memory()) + (4 << 20);
    BFloat16* const first = next;
    BFloat16 *const out = take(queries), *const dq = take(queries), *const dk = take(keys),
                    *const dv = take(keys);
    auto* const lse = reinterpret_cast<float*>(take(queries));
    const auto view = [&](const BFloat16* data, size_t heads) {
      return HeadsView<const BFloat16>{data, heads * shape.head_dim};
    };
    EXPECT_EQ(
        library_->Forward(shape, plan, q, k, v, out, lse, device.workspace(), device.stream()),
        Status::kOk)
        << library_->last_refusal();
    EXPECT_EQ(
        library_->Backward(shape, plan,
                           {.q = view(q, 6),
                            .k = view(k, 2),
                            .v = view(v, 2),
                            .out = view(out, 6),
                            .dout = view(dout, 6),
                            .lse = lse},
                           {.dq = dq, .dk = dk, .dv = dv}, device.workspace(), device.stream()),
        Status::kOk)
        << library_->last_refusal();
    std::vector<uint16_t> bits(results);
    EXPECT_EQ(device.api().memcpy_dtoh_async(bits.data(), reinterpret_cast<CUdeviceptr>(first),
                                             results * 2, device.stream()),
              CUDA_SUCCESS);
    EXPECT_EQ(device.api().stream_synchronize(device.stream()), CUDA_SUCCESS);
    return bits;
  };
  const std::vector<uint16_t> expected = run(whole);
  for (const auto& [batch, kv_heads] : {std::pair(2u, 2u), {1u, 2u}, {1u, 1u}}) {
    AttentionPlan parts;
    ASSERT_TRUE(library_->PlanParts(shape, {batch, kv_heads, uint64_t{1} << 30}, parts))
        << parts.why;
    EXPECT_EQ(run(parts), expected) << batch << ", " << kv_heads;
  }
}

}  // namespace
}  // namespace geminid::kernels
