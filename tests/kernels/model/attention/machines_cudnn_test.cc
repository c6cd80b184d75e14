// Whether the machine's own cuDNN accepts our graphs of attention for a described GPU. No GPU is
// needed, and nothing is computed. Machines without cuDNN skip the test.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): unsetenv

#include <string>
#include <string_view>

#include "gpu/cudnn_api.h"
#include "kernels/model/attention/attention_graph_cuda.h"
#include "kernels/model/attention/attention_parts.h"

namespace geminid::kernels {
namespace {

constexpr size_t kDescribesGpus = 90800;  // the first version that accepts a described GPU
constexpr std::string_view kH100 =
    R"({"deviceVer":900,"driverVer":13000,"cudaDeviceId":0,"totalGlobalMem":85000000000,)"
    R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
    R"("regsPerBlock":65536,"multiProcessorCount":132,"warpSize":32,)"
    R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,)"
    R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
    R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)"
    R"("supportCoopLaunch":1,"smClockRateKHz":1980000,"memClockRateKHz":2619000,)"
    R"("l2CacheSize":52428800,"deviceName":"NVIDIA H100 80GB HBM3"})";

class MachinesCudnnAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv(gpu::kCudnnPathVariable);
    ASSERT_NE(dlopen(GEMINID_DESCRIBED_GPU_DRIVER, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
    std::string error;
    if (!gpu::LoadCudnnApi(&api_, &error)) GTEST_SKIP() << error;
    if (api_.version() < kDescribesGpus) GTEST_SKIP() << gpu::CudnnVersion(api_.version());
  }

  static gpu::DnnDescriptor Describe(DnnDescriptors& made) {
    const gpu::DnnDescriptor properties = made.Make(gpu::DnnKind::kDeviceProperties);
    made.Set(properties, gpu::DnnAttribute::kDevicePropertiesJson, gpu::DnnType::kChar,
             static_cast<int64_t>(kH100.size()), kH100.data());
    made.Finalize(properties, "a description");
    return properties;
  }

  void ExpectPlans(const AttentionShape& shape) {
    SCOPED_TRACE(std::to_string(shape.sequence) + " tokens, heads of " +
                 std::to_string(shape.head_dim));
    DnnDescriptors made(api_);
    const gpu::DnnDescriptor properties = Describe(made);
    ASSERT_TRUE(made.ok()) << made.error();
    const auto number = [](size_t value) { return static_cast<int64_t>(value); };
    const AttentionHeads heads = {.batch = number(shape.batch),
                                  .heads = number(shape.heads),
                                  .kv_heads = number(shape.kv_heads),
                                  .sequence = number(shape.sequence),
                                  .head_dim = number(shape.head_dim),
                                  .query_stride = number(shape.heads * shape.head_dim),
                                  .kv_stride = number(shape.kv_heads * shape.head_dim)};
    const uint64_t expected = AttentionLibraryBytes(shape, shape.batch, shape.kv_heads);
    for (const auto& graph :
         {AttentionForwardGraph(api_, heads), AttentionBackwardGraph(api_, heads)}) {
      std::string why;
      EXPECT_TRUE(graph->Plan({.properties = properties}, &why)) << why;
      EXPECT_LE(graph->workspace_bytes(), expected);
    }
  }

  gpu::CudnnApi api_;
};

TEST_F(MachinesCudnnAttention, BothGraphs_HaveADeterministicPlanForAnH100) {
  ExpectPlans({.batch = 8, .sequence = 1024, .heads = 12, .kv_heads = 12, .head_dim = 64});
  ExpectPlans({.batch = 1, .sequence = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128});
  ExpectPlans({.batch = 2, .sequence = 37, .heads = 4, .kv_heads = 4, .head_dim = 8});
}

}  // namespace
}  // namespace geminid::kernels
