#include "daemon/os/subordinate_ids.h"

#include <pwd.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/os/event.h"

namespace geminid::os {
namespace {

constexpr int64_t kLookNanoseconds = 1'000'000'000;

std::map<std::string, uint64_t> NumbersOfUsers(const std::string& passwords) {
  std::map<std::string, uint64_t> numbers;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(passwords.c_str(), "re"),
                                                   &std::fclose);
  if (file == nullptr) return numbers;
  while (const passwd* const user = ::fgetpwent(file.get())) {  // NOLINT(concurrency-mt-unsafe)
    numbers.emplace(user->pw_name, user->pw_uid);
  }
  return numbers;
}

}  // namespace

std::vector<IdRange> ParseIdRanges(
    const std::string& text,
    const std::function<std::optional<uint64_t>(const std::string& name)>& number_of) {
  std::vector<IdRange> ranges;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, ':');
    IdRange range;
    if (parts.size() != 3 || parts[0].empty() || !absl::SimpleAtoi(parts[1], &range.first) ||
        !absl::SimpleAtoi(parts[2], &range.count)) {
      continue;
    }
    uint64_t number = 0;
    const bool is_number = absl::SimpleAtoi(parts[0], &number);
    const std::optional<uint64_t> found =
        is_number ? std::optional<uint64_t>(number) : number_of(parts[0]);
    range.owner = found.has_value() ? absl::StrCat(*found) : parts[0];
    ranges.push_back(std::move(range));
  }
  return ranges;
}

SubordinateIds::SubordinateIds(std::string users, std::string groups, std::string passwords)
    : passwords_(std::move(passwords)) {
  users_.path = std::move(users);
  groups_.path = std::move(groups);
}

void SubordinateIds::Refresh(File* file) const {
  const int64_t now = MonotonicNanoseconds();
  if (now < file->look_again_at) return;
  file->look_again_at = now + kLookNanoseconds;
  struct stat facts = {};
  const bool is_there = ::stat(file->path.c_str(), &facts) == 0;
  const int64_t changed_at =
      is_there ? facts.st_ctim.tv_sec * int64_t{1'000'000'000} + facts.st_ctim.tv_nsec : -1;
  if (changed_at == file->changed_at) return;
  file->changed_at = changed_at;
  std::ifstream in(file->path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::map<std::string, uint64_t> numbers = NumbersOfUsers(passwords_);
  file->ranges = ParseIdRanges(text, [&numbers](const std::string& name) {
    const auto found = numbers.find(name);
    return found == numbers.end() ? std::nullopt : std::optional<uint64_t>(found->second);
  });
}

std::optional<std::string> SubordinateIds::OwnerIn(File* file, uint64_t id) const {
  Refresh(file);
  for (const IdRange& range : file->ranges) {
    if (id >= range.first && id - range.first < range.count) return range.owner;
  }
  return std::nullopt;
}

}  // namespace geminid::os
