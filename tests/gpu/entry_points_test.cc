// Every entry point that the project may call has a case in geminid-driver-conformance. A new entry
// point needs one, too.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "gpu/cublaslt_api.h"
#include "gpu/cudnn_api.h"
#include "gpu/driver_api.h"
#include "gpu/nccl_api.h"
#include "gpu/nvml_api.h"

namespace geminid::gpu {
namespace {

struct EntryPoint {
  std::string member;  // of the table
  std::string name;    // in the library
};

std::vector<EntryPoint> AllEntryPoints() {
  return {
#define GEMINID_ENTRY(member, name, parameters) {#member, name},
      GEMINID_DRIVER_FUNCTIONS(GEMINID_ENTRY) GEMINID_NEWER_DRIVER_FUNCTIONS(GEMINID_ENTRY)
          GEMINID_NVML_FUNCTIONS(GEMINID_ENTRY) GEMINID_NVML_HEALTH_FUNCTIONS(GEMINID_ENTRY)
              GEMINID_CUBLASLT_FUNCTIONS(GEMINID_ENTRY) GEMINID_CUDNN_FUNCTIONS(GEMINID_ENTRY)
                  GEMINID_NCCL_FUNCTIONS(GEMINID_ENTRY) GEMINID_NEWER_NCCL_FUNCTIONS(GEMINID_ENTRY)
#undef GEMINID_ENTRY
  };
}

// The text of the program's sources.
std::string Cases() {
  std::stringstream text;
  for (const auto& file : std::filesystem::directory_iterator(GEMINID_SOURCE_DIR "/tests/gpu")) {
    if (file.path().filename().string().find("conformance") == std::string::npos) continue;
    text << std::ifstream(file.path()).rdbuf();
  }
  return text.str();
}

// The entry points that no call through the table uses.
std::vector<std::string> WithoutACase(const std::vector<EntryPoint>& points,
                                      const std::string& cases) {
  std::vector<std::string> names;
  for (const EntryPoint& point : points) {
    if (!std::regex_search(
            cases, std::regex("(api|api_|nvml|nvml_|nccl_|lt_|dnn_)\\." + point.member + "\\("))) {
      names.push_back(point.name);
    }
  }
  return names;
}

TEST(EntryPoints, EachHasACaseOfConformance) {
  EXPECT_EQ(WithoutACase(AllEntryPoints(), Cases()), std::vector<std::string>());
}

TEST(EntryPoints, NewOneWithoutACase_IsNamed) {
  EXPECT_EQ(WithoutACase({{"device_get_count", "cuDeviceGetCount"}, {"fly", "cuFly"}}, Cases()),
            std::vector<std::string>{"cuFly"});
}

}  // namespace
}  // namespace geminid::gpu
