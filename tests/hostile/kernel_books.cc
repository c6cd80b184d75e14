#include "tests/hostile/kernel_books.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "daemon/os/process_place.h"

namespace geminid::hostile {
namespace {

bool Enter(const std::string& folder) {
  std::ofstream file(folder + "/cgroup.procs");
  file << ::getpid() << std::flush;
  return file.good();
}

}  // namespace

std::unique_ptr<KernelBooks> KernelBooks::Open() {
  const os::CgroupPath now = os::CgroupOf(base::ReadKernelFile("/proc/self/cgroup"));
  const std::string path = now.path == "/" ? "" : now.path;
  struct Version {
    std::string root;
    std::string key;
  };
  for (const Version& version :
       {Version{"/sys/fs/cgroup/memory", "total_shmem"}, Version{"/sys/fs/cgroup", "shmem"}}) {
    const std::string before = version.root + path;
    const std::string folder = absl::StrCat(before, "/geminid-hostile-", ::getpid());
    if (::mkdir(folder.c_str(), 0755) != 0) continue;
    std::unique_ptr<KernelBooks> books(new KernelBooks(folder, before, version.key));
    if (Enter(folder) && books->SharedBytes().has_value()) return books;
  }
  return nullptr;
}

KernelBooks::~KernelBooks() {
  (void)Enter(before_);
  (void)::rmdir(folder_.c_str());
}

std::optional<uint64_t> KernelBooks::SharedBytes() const {
  std::ifstream file(folder_ + "/memory.stat");
  std::string key;
  uint64_t bytes = 0;
  while (file >> key >> bytes) {
    if (key == key_) return bytes;
  }
  return std::nullopt;
}

}  // namespace geminid::hostile
