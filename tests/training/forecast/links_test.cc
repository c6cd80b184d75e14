// The libraries that the forecast links: planning must work on a laptop without those of the
// daemon.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace geminid::forecast {
namespace {

// The files that this process has mapped, including shared libraries.
std::string MappedFiles() {
  std::ostringstream text;
  text << std::ifstream("/proc/self/maps").rdbuf();
  return text.str();
}

TEST(Forecast, Loaded_BringsNeitherGrpcNorSystemdWithIt) {
  const std::string files = MappedFiles();
  EXPECT_NE(files.find("libprotobuf"), std::string::npos) << "the test looks in the wrong place";
  for (const char* library : {"libgrpc", "libsystemd", "libprometheus", "libnuma"}) {
    EXPECT_EQ(files.find(library), std::string::npos) << library;
  }
}

}  // namespace
}  // namespace geminid::forecast
