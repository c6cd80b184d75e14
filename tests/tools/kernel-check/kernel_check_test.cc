#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <regex>
#include <set>

#include "base/max_isa.h"
#include "tests/kernels/cuda_on_host/registry.h"
#include "tests/tools/kernel-check/device_on_host.h"
#include "tools/kernel-check/norm_check.h"
#include "tools/kernel-check/step_check.h"
#include "tools/kernel-check/trial.h"

namespace geminid::kernel_check {
namespace {

using kernels::Status;

std::string TestName(std::string name) {
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

class EveryStep : public testing::TestWithParam<size_t> {};

TEST_P(EveryStep, CudaKernelRunOnTheHost_HasTheBitsOfItsTwin) {
  const StepCase one = AllStepCases()[GetParam()];
  const Finding finding = CheckStep(one, /*timed_count=*/0);
  EXPECT_TRUE(finding.passed) << one.name << ": " << finding.detail;
  EXPECT_GT(finding.compared, 0u);
}

INSTANTIATE_TEST_SUITE_P(KernelCheck, EveryStep, testing::Range<size_t>(0, AllStepCases().size()),
                         [](const testing::TestParamInfo<size_t>& tested) {
                           return TestName(AllStepCases()[tested.param].name);
                         });

// A GPU fuses multiply and add with one rounding. From this level on, the host does the same.
class EveryKernel : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    if (base::MaxIsa().value_or(base::Isa::kAmx) < base::Isa::kAvx2) {
      GTEST_SKIP() << "the twins of this level round twice";
    }
  }
};

TEST_P(EveryKernel, RunOnTheHost_ComputesWhatItsTwinDoes) {
  const KernelCase one = AllKernelCases()[GetParam()];
  for (const auto order : {cuda_on_host::BlockOrder::kForward,
                           cuda_on_host::BlockOrder::kBackward}) {  // the order must not matter
    cuda_on_host::launch_order = order;
    const Finding finding = CheckKernel(one, /*timing=*/false);
    EXPECT_TRUE(finding.passed) << one.name << ": " << finding.detail;
    EXPECT_GT(finding.compared, 0u);
  }
  cuda_on_host::launch_order = cuda_on_host::BlockOrder::kForward;
}

INSTANTIATE_TEST_SUITE_P(KernelCheck, EveryKernel,
                         testing::Range<size_t>(0, AllKernelCases().size()),
                         [](const testing::TestParamInfo<size_t>& tested) {
                           return TestName(AllKernelCases()[tested.param].name);
                         });

TEST(KernelCheck, SumsOfSquares_HaveTheBitsOfTheHost) {
  for (const Finding& finding : CheckNorms(/*timed_count=*/0)) {
    EXPECT_TRUE(finding.passed) << finding.name << ": " << finding.detail;
  }
}

StepCase Case(const std::string& name) {
  for (const StepCase& one : AllStepCases()) {
    if (one.name == name) return one;
  }
  ADD_FAILURE() << "no case " << name;
  return {};
}

TEST(KernelCheck, KernelThatLeavesOneParameterOut_IsFound) {
  StepCase one = Case("lion");
  const StepCase::CudaStep whole = one.cuda_step;
  one.cuda_step = [whole](kernels::CudaTensor tensor) {
    --tensor.count;
    return whole(tensor);
  };
  const Finding finding = CheckStep(one, 0);
  EXPECT_FALSE(finding.passed);
  const size_t last = kComparedRows * kComparedColumns - 1;
  EXPECT_THAT(finding.detail, testing::HasSubstr("master[" + std::to_string(last) + "]"));
}

TEST(KernelCheck, KernelOfAnotherRule_IsFound) {
  StepCase one = Case("adamw");
  one.cuda_step = Case("adam").cuda_step;
  EXPECT_FALSE(CheckStep(one, 0).passed);
}

TEST(KernelCheck, KernelThatRefuses_IsReportedWithItsStatus) {
  StepCase one = Case("sgd");
  one.cuda_step = [](const kernels::CudaTensor&) { return Status::kUnsupported; };
  const Finding finding = CheckStep(one, 0);
  EXPECT_FALSE(finding.passed);
  EXPECT_THAT(finding.detail, testing::HasSubstr("Unsupported"));
}

// A case of one array of `count` ones. The device's call changes it by `on_device`.
KernelCase Ones(size_t count, double tolerance,
                std::function<Status(float* values, size_t count)> on_device) {
  KernelCase one;
  one.name = "ones";
  one.compared.emplace_back([=](Trial& trial) {
    const auto out = trial.Out("out", std::vector<float>(count, 0.0F), 1, tolerance);
    trial.Run(
        [&] {
          std::fill_n(out.host, count, 1.0F);
          return Status::kOk;
        },
        [&] { return on_device(out.device, count); });
  });
  return one;
}

Status WriteOnes(float* values, size_t count) {
  std::fill_n(values, count, 1.0F);  // this device's memory is the heap
  return Status::kOk;
}

TEST(KernelCheck, KernelThatDoesWhatItsTwinDoes_Passes) {
  const Finding finding = CheckKernel(Ones(5, 0, WriteOnes), false);
  EXPECT_TRUE(finding.passed) << finding.detail;
  EXPECT_EQ(finding.compared, 5u);
}

TEST(KernelCheck, KernelThatWritesNothing_IsFound) {
  const Finding finding =
      CheckKernel(Ones(5, 0, [](float*, size_t) { return Status::kOk; }), false);
  EXPECT_FALSE(finding.passed);
  EXPECT_THAT(finding.detail, testing::HasSubstr("out[0] is 0.000000, not 1.000000"));
}

TEST(KernelCheck, OneBitTooMuch_IsFoundUnlessTolerated) {
  const auto off_by_a_bit = [](float* values, size_t count) {
    std::fill_n(values, count, 1.0F);
    values[count - 1] = 1.0F + 0x1p-23F;
    return Status::kOk;
  };
  const Finding exact = CheckKernel(Ones(5, 0, off_by_a_bit), false);
  EXPECT_FALSE(exact.passed);
  EXPECT_THAT(exact.detail, testing::HasSubstr("out[4]"));
  EXPECT_TRUE(CheckKernel(Ones(5, 1e-6, off_by_a_bit), false).passed);
  EXPECT_FALSE(CheckKernel(Ones(5, 1e-8, off_by_a_bit), false).passed);
}

TEST(KernelCheck, NaN_IsWithinNoTolerance) {
  const auto nan = [](float* values, size_t count) {
    std::fill_n(values, count, std::numeric_limits<float>::quiet_NaN());
    return Status::kOk;
  };
  EXPECT_FALSE(CheckKernel(Ones(5, 1.0, nan), false).passed);
}

TEST(KernelCheck, KernelThatSaysNo_FailsWithItsStatus) {
  const Finding finding =
      CheckKernel(Ones(5, 0, [](float*, size_t) { return Status::kInvalidShape; }), false);
  EXPECT_FALSE(finding.passed);
  EXPECT_THAT(finding.detail, testing::HasSubstr("the device says InvalidShape"));
}

#ifdef GEMINID_KERNEL_IMAGES
// The tests run exactly the kernels that a GPU would run.
TEST(KernelCheck, KernelsOfTheHost_AreThoseOfTheFatBinaries) {
  std::set<std::string> compiled;
  const std::regex entry("Compiling entry function '(\\w+)'");
  for (const auto& file : std::filesystem::directory_iterator(GEMINID_KERNEL_IMAGES)) {
    if (file.path().extension() != ".ptxas") continue;
    std::ifstream report(file.path());
    for (std::string line; std::getline(report, line);) {
      std::smatch found;
      if (std::regex_search(line, found, entry)) compiled.insert(found[1]);
    }
  }
  std::set<std::string> on_host;
  for (const auto& kernel : cuda_on_host::AllHostKernels()) on_host.insert(kernel.name);
  EXPECT_EQ(on_host, compiled);
}
#endif

}  // namespace
}  // namespace geminid::kernel_check
