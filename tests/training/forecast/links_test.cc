// What the forecast needs to run: planning must work on a laptop without the daemon's libraries.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace geminid::forecast {
namespace {

// The files that this process has mapped, its shared libraries among them.
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
