// Weights and gradients as DLPack tensors, through the C interface.
#include "geminid/c_dlpack.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "client/c_api/dlpack_tensor.h"
#include "tests/client/c_api/c_api_fixture.h"

namespace geminid::c_api {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DlpackTest : public CApiTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Connect());
    ASSERT_NO_FATAL_FAILURE(MakeEngine());
  }

  uint64_t Use(uint32_t parameter, int32_t pass) {
    uint64_t operation = 0;
    EXPECT_EQ(geminid_engine_use(engine_, pass, &parameter, 1, 0, &operation, error_), GEMINID_OK)
        << Message();
    return operation;
  }

  DLManagedTensorVersioned* Weight(uint64_t operation, uint32_t parameter) {
    DLManagedTensorVersioned* tensor = nullptr;
    EXPECT_EQ(geminid_engine_export_weight(engine_, operation, parameter, &tensor, error_),
              GEMINID_OK)
        << Message();
    return tensor;
  }

  static std::span<float> Values(const DLManagedTensorVersioned* tensor) {
    return {static_cast<float*>(tensor->dl_tensor.data), kElements};
  }
};

TEST_F(DlpackTest, ExportedWeight_IsTheMemoryOfTheOperation) {
  ASSERT_NO_FATAL_FAILURE(InitializeWith(0.25));
  const uint64_t operation = Use(kA, GEMINID_EVALUATE);
  const void* address = nullptr;
  ASSERT_EQ(geminid_engine_weight(engine_, operation, kA, &address, error_), GEMINID_OK);
  DLManagedTensorVersioned* const tensor = Weight(operation, kA);
  EXPECT_EQ(tensor->version.major, 1u);
  EXPECT_EQ(tensor->flags, kDlpackReadOnly);
  const DLTensor& view = tensor->dl_tensor;
  EXPECT_EQ(view.data, address);
  EXPECT_EQ(view.byte_offset, 0u);
  EXPECT_EQ(view.device.device_type, kDlpackHost.device_type);
  EXPECT_EQ(view.dtype.code, kDlpackFloat);
  EXPECT_EQ(view.dtype.bits, 32);
  EXPECT_EQ(view.dtype.lanes, 1);
  EXPECT_THAT(std::span(view.shape, view.ndim), ElementsAre(kRows, kColumns));
  EXPECT_THAT(std::span(view.strides, view.ndim), ElementsAre(kColumns, 1));
  EXPECT_THAT(Values(tensor), Each(0.25f));
  tensor->deleter(tensor);
  EXPECT_EQ(geminid_engine_finish(engine_, operation, 0, error_), GEMINID_OK) << Message();
}

// DLPack's code and bits for each geminid_data_types and geminid_frozen_types.
struct Type {
  int32_t ours;
  uint8_t code, bits;
};
class DlpackTypesTest : public DlpackTest, public ::testing::WithParamInterface<Type> {};

TEST_P(DlpackTypesTest, ExportedWeight_HasTheTypeOfItsParameter) {
  geminid_engine_free(&engine_);
  geminid_engine_options options = EngineOptions(nullptr);
  options.data_type = GEMINID_BFLOAT16;
  std::vector<geminid_parameter> parameters = Parameters();
  parameters[kB].data_type = GetParam().ours;
  parameters[kB].trainable = GetParam().ours <= GEMINID_FLOAT32;
  ASSERT_EQ(Create(options, parameters), GEMINID_OK) << Message();
  ASSERT_NO_FATAL_FAILURE(InitializeWith(1));
  const uint64_t operation = Use(kB, GEMINID_EVALUATE);
  DLManagedTensorVersioned* const tensor = Weight(operation, kB);
  EXPECT_EQ(tensor->dl_tensor.dtype.code, GetParam().code);
  EXPECT_EQ(tensor->dl_tensor.dtype.bits, GetParam().bits);
  tensor->deleter(tensor);
}

INSTANTIATE_TEST_SUITE_P(All, DlpackTypesTest,
                         ::testing::Values(Type{GEMINID_DEFAULT_TYPE, 4, 16},
                                           Type{GEMINID_BFLOAT16, 4, 16},
                                           Type{GEMINID_FLOAT32, 2, 32},
                                           Type{GEMINID_FLOAT16, 2, 16}, Type{GEMINID_INT8, 0, 8},
                                           Type{GEMINID_UINT8, 1, 8}));

TEST_F(DlpackTest, OperationWithAnExportedTensor_IsNotFinished) {
  const uint64_t kept = Use(kA, GEMINID_EVALUATE), other = Use(kB, GEMINID_EVALUATE);
  DLManagedTensorVersioned* const first = Weight(kept, kA);
  DLManagedTensorVersioned* const second = Weight(kept, kA);
  EXPECT_EQ(geminid_engine_finish(engine_, kept, 0, error_), GEMINID_FAILED_PRECONDITION);
  EXPECT_THAT(Message(), HasSubstr("has 2 exported tensor(s); call their deleters"));
  EXPECT_FALSE(IsFinal());
  EXPECT_EQ(geminid_engine_finish_all(engine_, 0, error_), GEMINID_FAILED_PRECONDITION);
  EXPECT_EQ(geminid_engine_finish(engine_, other, 0, error_), GEMINID_INVALID_ARGUMENT)
      << "finish_all has finished it";
  first->deleter(first);
  EXPECT_EQ(geminid_engine_finish(engine_, kept, 0, error_), GEMINID_FAILED_PRECONDITION);
  EXPECT_THAT(Values(second), Each(0.0f));
  second->deleter(second);
  EXPECT_EQ(geminid_engine_finish(engine_, kept, 0, error_), GEMINID_OK) << Message();
  ASSERT_NO_FATAL_FAILURE(Descend());
}

TEST_F(DlpackTest, TensorDeletedAfterAllHandles_KeepsItsMemory) {
  ASSERT_NO_FATAL_FAILURE(InitializeWith(3));
  DLManagedTensorVersioned* const tensor = Weight(Use(kA, GEMINID_EVALUATE), kA);
  geminid_session_free(&session_);
  geminid_engine_free(&engine_);
  geminid_ranks_free(&ranks_);
  EXPECT_THAT(Values(tensor), Each(3.0f));
  tensor->deleter(tensor);
}

TEST_F(DlpackTest, GradientWrittenThroughATensor_IsThatOfTheStep) {
  ASSERT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_OK) << Message();
  for (const uint32_t parameter : {kA, kB}) {
    const uint64_t operation = Use(parameter, GEMINID_BACKWARD);
    DLManagedTensorVersioned* tensor = nullptr;
    int accumulates = -1;
    ASSERT_EQ(geminid_engine_export_gradient(engine_, operation, parameter, &tensor, &accumulates,
                                             error_),
              GEMINID_OK)
        << Message();
    EXPECT_EQ(accumulates, 0);
    EXPECT_EQ(tensor->flags, 0u) << "it may be written";
    std::ranges::fill(Values(tensor), -2.0f);
    tensor->deleter(tensor);
    ASSERT_EQ(geminid_engine_gradient_written(engine_, operation, parameter, error_), GEMINID_OK);
    ASSERT_EQ(geminid_engine_finish(engine_, operation, 0, error_), GEMINID_OK) << Message();
  }
  ASSERT_EQ(Step(0.5), GEMINID_OK) << Message();
  EXPECT_EQ(FirstOf(kA, GEMINID_EVALUATE), 1.0f);
}

TEST_F(DlpackTest, WhatCannotBeExported_IsRefused) {
  DLManagedTensorVersioned* tensor = nullptr;
  int accumulates = 0;
  const uint64_t operation = Use(kA, GEMINID_EVALUATE);
  EXPECT_EQ(geminid_engine_export_weight(engine_, operation, kB, &tensor, error_),
            GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), HasSubstr("has no weight of parameter 1"));
  EXPECT_EQ(
      geminid_engine_export_gradient(engine_, operation, kA, &tensor, &accumulates, error_),
      GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), HasSubstr("has no gradient of parameter 0"));
  EXPECT_EQ(geminid_engine_export_weight(engine_, operation + 1, kA, &tensor, error_),
            GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), HasSubstr("is not open"));
  EXPECT_EQ(geminid_engine_export_weight(engine_, operation, kA, nullptr, error_),
            GEMINID_INVALID_ARGUMENT);
  EXPECT_EQ(geminid_engine_export_gradient(engine_, operation, kA, &tensor, nullptr, error_),
            GEMINID_INVALID_ARGUMENT);
  EXPECT_EQ(tensor, nullptr);
  EXPECT_EQ(geminid_engine_finish(engine_, operation, 0, error_), GEMINID_OK)
      << "what was refused keeps nothing open: " << Message();
}

}  // namespace
}  // namespace geminid::c_api
