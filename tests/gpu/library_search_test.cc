// The folders in which CUDA libraries are searched.
#include "gpu/library_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): setenv

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "gpu/cublaslt_api.h"
#include "tests/base/temporary_folder.h"

namespace geminid::gpu {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kVariable[] = "GEMINID_LIBTEST";

// Sets up its own environment; restores the previous one.
class LibrarySearch : public ::testing::Test {
 protected:
  LibrarySearch() {
    for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PATH", "HOME",
                             "CUDA_HOME", "CUDA_PATH", kVariable, kCublasLtPathVariable}) {
      const char* const value = getenv(name);
      if (value != nullptr) before_[name] = value;
      cleared_.push_back(name);
      unsetenv(name);
    }
  }
  ~LibrarySearch() override {
    for (const std::string& name : cleared_) {
      unsetenv(name.c_str());
      if (before_.contains(name)) setenv(name.c_str(), before_[name].c_str(), 1);
    }
  }
  // Makes an empty file in the folder; returns its path.
  std::string Add(const std::string& path) const {
    const fs::path file = fs::path(folder_.path()) / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << "no library";
    return file;
  }
  void Set(const char* name, const std::string& path) const {
    setenv(name, (fs::path(folder_.path()) / path).c_str(), 1);
  }

  const LibraryNames names_ = {kVariable, {"libgeminid-test.so.2", "libgeminid-test.so.1"}};
  const base::TemporaryFolder folder_;

 private:
  std::map<std::string, std::string> before_;
  std::vector<std::string> cleared_;
};

TEST_F(LibrarySearch, Variable_NamesTheOnlyFile) {
  Set("PYTHONPATH", "packages");
  Add("packages/nvidia/cu13/lib/libgeminid-test.so.2");
  setenv(kVariable, "/some/library.so", 1);
  EXPECT_THAT(LibraryCandidates(names_), ElementsAre("/some/library.so"));
  setenv(kVariable, kNoLibrary, 1);
  EXPECT_THAT(LibraryCandidates(names_), IsEmpty());
  std::string error;
  EXPECT_EQ(FindLibrary(names_, &error).handle, nullptr);
  EXPECT_EQ(error, "GEMINID_LIBTEST says none");
}

TEST_F(LibrarySearch, WheelsOfEveryPython_AreFound) {
  const std::string soname = "libgeminid-test.so.2";
  Set("VIRTUAL_ENV", "environment");
  Set("CONDA_PREFIX", "conda");
  Set("PYTHONPATH", "packages");
  Set("HOME", "home");
  Set("PATH", "python/bin");
  Add("python/bin/python3");
  for (const char* packages :
       {"environment/lib/python3.12/site-packages", "conda/lib/python3.11/site-packages",
        "packages", "home/.local/lib/python3.10/site-packages",
        "python/lib/python3.13/site-packages"}) {
    const std::string file = Add(std::string(packages) + "/nvidia/cu13/lib/" + soname);
    EXPECT_THAT(LibraryCandidates(names_), Contains(file));
  }
}

TEST_F(LibrarySearch, Order_IsBestNameFirstAndTheLoadersFoldersBeforeWheelsBeforeToolkits) {
  Set("PYTHONPATH", "packages");
  Set("CUDA_HOME", "toolkit");
  const std::string wheel = Add("packages/nvidia/test/lib/libgeminid-test.so.2");
  const std::string toolkit = Add("toolkit/lib64/libgeminid-test.so.2");
  const std::string old = Add("packages/nvidia/test/lib/libgeminid-test.so.1");
  EXPECT_THAT(LibraryCandidates(names_),
              ElementsAre("libgeminid-test.so.2", wheel, toolkit, "libgeminid-test.so.1", old));
}

TEST_F(LibrarySearch, FilesThatDoNotLoad_ArePassedOver) {
  Set("PYTHONPATH", "packages");
  const LibraryNames names = {kVariable, {"libgeminid-test.so.2", "libm.so.6"}};
  Add("packages/nvidia/test/lib/libgeminid-test.so.2");
  std::string error;
  const OpenLibrary library = FindLibrary(names, &error);
  EXPECT_NE(library.handle, nullptr);
  EXPECT_THAT(library.path, HasSubstr("/libm.so.6"));
}

TEST_F(LibrarySearch, LibraryThatIsNowhere_IsNamed) {
  std::string error;
  EXPECT_EQ(FindLibrary(names_, &error).handle, nullptr);
  EXPECT_THAT(error, HasSubstr("libgeminid-test.so.2"));
}

TEST_F(LibrarySearch, LibraryThatIsNotCublasLt_SaysWhatItLacks) {
  setenv(kCublasLtPathVariable, "libm.so.6", 1);
  CublasLtApi api;
  std::string error;
  EXPECT_FALSE(LoadCublasLtApi(13000, &api, &error));
  EXPECT_THAT(error, HasSubstr("lacks cublasLtCreate"));
}

TEST_F(LibrarySearch, DriverThatIsOlderThanEveryLibrary_GetsNone) {
  CublasLtApi api;
  std::string error;
  EXPECT_FALSE(LoadCublasLtApi(11080, &api, &error));
  EXPECT_THAT(error, HasSubstr("11.8"));
}

}  // namespace
}  // namespace geminid::gpu
