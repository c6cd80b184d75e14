#include "base/socket_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace geminid::base {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOthersMayWrite = S_IWGRP | S_IWOTH;

// In a sticky folder anybody may create files, but not rename those of others.
std::string WhyReplaceable(const fs::path& folder, bool is_innermost,
                           std::span<const uid_t> trusted) {
  struct stat facts = {};
  if (::stat(folder.c_str(), &facts) != 0) return "";  // it does not exist yet
  const bool is_trusted =
      facts.st_uid == 0 || std::ranges::find(trusted, facts.st_uid) != trusted.end();
  if (!is_trusted) return absl::StrCat("folder ", folder.string(), " is user ", facts.st_uid, "'s");
  const bool is_sticky = (facts.st_mode & S_ISVTX) != 0;
  if ((facts.st_mode & kOthersMayWrite) == 0 || (is_sticky && !is_innermost)) return "";
  return absl::StrFormat("folder %s has mode %04o, so others may create files in it",
                         folder.string(), facts.st_mode & 07777);
}

}  // namespace

std::string DescribeOtherOwners(const std::string& path, std::span<const uid_t> trusted) {
  std::error_code error;
  // Resolves symbolic links on the way.
  const fs::path parent = fs::path(path).parent_path();
  const fs::path innermost = fs::weakly_canonical(parent.empty() ? "." : parent, error);
  if (error) return "";  // opening it will report the error
  for (fs::path folder = innermost;; folder = folder.parent_path()) {
    if (std::string why = WhyReplaceable(folder, folder == innermost, trusted); !why.empty()) {
      return why;
    }
    if (!folder.has_relative_path()) return "";
  }
}

}  // namespace geminid::base
