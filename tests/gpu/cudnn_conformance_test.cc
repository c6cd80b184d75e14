// The behaviour of cuDNN that the project relies on: on the double or, with --real-driver, on the
// machine's own library and GPU. Whole graphs of attention are tested against our own kernels
// (tests/kernels/model/attention).
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "gpu/cudnn_api.h"
#include "tests/gpu/conformance_fixture.h"

namespace geminid::gpu {
namespace {

class CudnnConformance : public DriverConformance {
 protected:
  void SetUp() override {
    DriverConformance::SetUp();
    std::string error;
    if (!LoadCudnnApi(&dnn_, &error)) GTEST_SKIP() << error;
    ASSERT_EQ(dnn_.create(&handle_), DnnStatus::kSuccess);
    EXPECT_EQ(dnn_.set_stream(handle_, stream_), DnnStatus::kSuccess);
  }
  void TearDown() override {
    for (const DnnDescriptor made : made_) {
      EXPECT_EQ(dnn_.descriptor_destroy(made), DnnStatus::kSuccess);
    }
    if (handle_ != nullptr) {
      Synchronize();
      EXPECT_EQ(dnn_.destroy(handle_), DnnStatus::kSuccess);
    }
    DriverConformance::TearDown();
  }

  DnnDescriptor Make(DnnKind kind) {
    DnnDescriptor made = nullptr;
    EXPECT_EQ(dnn_.descriptor_create(kind, &made), DnnStatus::kSuccess);
    made_.push_back(made);
    return made;
  }
  DnnDescriptor Tensor(int64_t id) {
    const DnnDescriptor tensor = Make(DnnKind::kTensor);
    const std::array<int64_t, 4> dims = {1, 1, 4, 8}, strides = {32, 32, 8, 1};
    const DnnData type = DnnData::kBf16;
    const int64_t alignment = 16;
    const bool no = false;
    EXPECT_EQ(dnn_.set(tensor, DnnAttribute::kTensorType, DnnType::kDataType, 1, &type),
              DnnStatus::kSuccess);
    EXPECT_EQ(dnn_.set(tensor, DnnAttribute::kTensorDimensions, DnnType::kInt64, 4, dims.data()),
              DnnStatus::kSuccess);
    EXPECT_EQ(dnn_.set(tensor, DnnAttribute::kTensorStrides, DnnType::kInt64, 4, strides.data()),
              DnnStatus::kSuccess);
    EXPECT_EQ(dnn_.set(tensor, DnnAttribute::kTensorId, DnnType::kInt64, 1, &id),
              DnnStatus::kSuccess);
    EXPECT_EQ(dnn_.set(tensor, DnnAttribute::kTensorAlignment, DnnType::kInt64, 1, &alignment),
              DnnStatus::kSuccess);
    EXPECT_EQ(dnn_.set(tensor, DnnAttribute::kTensorIsVirtual, DnnType::kBoolean, 1, &no),
              DnnStatus::kSuccess);
    EXPECT_EQ(dnn_.set(tensor, DnnAttribute::kTensorIsByValue, DnnType::kBoolean, 1, &no),
              DnnStatus::kSuccess);
    return tensor;
  }

  CudnnApi dnn_;
  DnnHandle handle_ = nullptr;
  std::vector<DnnDescriptor> made_;
};

TEST_F(CudnnConformance, TensorWithAllThatItNeeds_IsFinalizedAndThenFixed) {
  const DnnDescriptor tensor = Tensor(1);
  EXPECT_EQ(dnn_.finalize(tensor), DnnStatus::kSuccess);
  const int64_t id = 2;
  EXPECT_NE(dnn_.set(tensor, DnnAttribute::kTensorId, DnnType::kInt64, 1, &id),
            DnnStatus::kSuccess);
}

TEST_F(CudnnConformance, TensorWithoutDimensions_IsNotFinalized) {
  EXPECT_NE(dnn_.finalize(Make(DnnKind::kTensor)), DnnStatus::kSuccess);
}

TEST_F(CudnnConformance, GraphWithoutOperations_IsNotFinalized) {
  const DnnDescriptor graph = Make(DnnKind::kGraph);
  EXPECT_EQ(dnn_.set(graph, DnnAttribute::kGraphHandle, DnnType::kHandle, 1,
                     static_cast<const void*>(&handle_)),
            DnnStatus::kSuccess);
  EXPECT_NE(dnn_.finalize(graph), DnnStatus::kSuccess);
}

TEST_F(CudnnConformance, WhatIsNotFinalized_IsNeitherAskedNorRun) {
  const DnnDescriptor plan = Make(DnnKind::kExecutionPlan);
  int64_t bytes = 0, count = 0;
  EXPECT_NE(dnn_.get(plan, DnnAttribute::kPlanWorkspaceBytes, DnnType::kInt64, 1, &count, &bytes),
            DnnStatus::kSuccess);
  EXPECT_NE(dnn_.execute(handle_, plan, Make(DnnKind::kVariantPack)), DnnStatus::kSuccess);
}

}  // namespace
}  // namespace geminid::gpu
