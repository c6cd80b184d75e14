#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "tests/kernels/cuda_on_host/registry.h"
#include "tools/kernel-check/norm_check.h"
#include "tools/kernel-check/step_check.h"

namespace geminid::kernel_check {
namespace {

using kernels::Status;

class EveryStep : public testing::TestWithParam<size_t> {};

TEST_P(EveryStep, CudaKernelRunOnTheHost_HasTheBitsOfItsTwin) {
  const StepCase one = AllStepCases()[GetParam()];
  const Finding finding = CheckStep(one, /*timed_count=*/0);
  EXPECT_TRUE(finding.passed) << one.name << ": " << finding.detail;
  EXPECT_GT(finding.compared, 0u);
}

INSTANTIATE_TEST_SUITE_P(KernelCheck, EveryStep, testing::Range<size_t>(0, AllStepCases().size()),
                         [](const testing::TestParamInfo<size_t>& tested) {
                           std::string name = AllStepCases()[tested.param].name;
                           for (char& c : name) c = std::isalnum(c) ? c : '_';
                           return name;
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

#ifdef GEMINID_KERNEL_IMAGES
// What tests run is what a GPU would: nothing is only in one of them.
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
