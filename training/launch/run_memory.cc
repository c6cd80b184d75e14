#include "training/launch/run_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/memfd.h"
#include "base/system_error.h"

namespace geminid::trainer {
namespace {

off_t PlaceOf(RunNote note) {
  return static_cast<off_t>(static_cast<size_t>(note) * kRunNoteBytes);
}

}  // namespace

absl::StatusOr<base::UniqueFd> MakeRunMemory() {
  return base::CreateSealedMemfd("geminid-run", kRunNotes * kRunNoteBytes);
}

RunMemory RunMemory::From(const collectives::Environment& environment) {
  const char* const text = environment(kRunMemoryVariable);
  int fd = -1;
  if (text == nullptr || !absl::SimpleAtoi(text, &fd) || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    return RunMemory();
  }
  return RunMemory(fd);
}

absl::Status RunMemory::Keep(RunNote note, const std::string& words) const {
  std::array<char, kRunNoteBytes> page = {};
  if (words.size() >= page.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a run stores at most ", page.size() - 1, " bytes, not ", words.size()));
  }
  words.copy(page.data(), words.size());
  if (pwrite(fd_, page.data(), page.size(), PlaceOf(note)) == static_cast<ssize_t>(page.size())) {
    return absl::OkStatus();
  }
  return base::SystemError(errno, "pwrite", "this run's memory of its restarts");
}

std::string RunMemory::Kept(RunNote note) const {
  std::array<char, kRunNoteBytes> page = {};
  if (pread(fd_, page.data(), page.size() - 1, PlaceOf(note)) < 0) return "";
  return page.data();
}

}  // namespace geminid::trainer
