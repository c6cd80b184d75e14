#include "tools/gpu-verify/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace geminid::gpu_verify {
namespace {

// The path of the CUDA toolkit's assembler, or nothing.
std::string Assembler() {
  for (const char* path : {"/usr/local/cuda/bin/ptxas", "/usr/bin/ptxas"}) {
    if (access(path, X_OK) == 0) return path;
  }
  return "";
}

bool Assembles(const std::string& text, const std::string& architecture) {
  char folder[] = "/tmp/kernels_test_XXXXXX";
  if (mkdtemp(folder) == nullptr) return false;
  const std::string base = folder;
  std::ofstream(base + "/kernels.ptx") << text;
  const int status = std::system((Assembler() + " -arch=" + architecture + " " + base +
                                  "/kernels.ptx -o " + base + "/kernels.cubin 2>/dev/null")
                                     .c_str());
  unlink((base + "/kernels.ptx").c_str());
  unlink((base + "/kernels.cubin").c_str());
  rmdir(folder);
  return status == 0;
}

TEST(KernelText, ForAmpereAndHopper_Assembles) {
  if (Assembler().empty()) GTEST_SKIP() << "no ptxas here";
  for (const char* architecture : {"sm_80", "sm_90"}) {
    EXPECT_TRUE(Assembles(KernelText(), architecture)) << architecture;
  }
  EXPECT_FALSE(Assembles(KernelText() + "nonsense", "sm_80"));
}

TEST(KernelText, OfOldDrivers_NeedsNoNewerInstructionSet) {
  EXPECT_THAT(KernelText(), testing::StartsWith(".version 7.0\n.target sm_80\n"));
}

}  // namespace
}  // namespace geminid::gpu_verify
