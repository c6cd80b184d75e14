// Finds the owners of subordinate ids, which a user may hand out to processes of its own.
#ifndef GEMINID_DAEMON_OS_SUBORDINATE_IDS_H_
#define GEMINID_DAEMON_OS_SUBORDINATE_IDS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace geminid::os {

// One line of /etc/subuid or /etc/subgid.
struct IdRange {
  uint64_t first = 0;
  uint64_t count = 0;
  std::string owner;  // a user's number, or a name without a user
  bool operator==(const IdRange&) const = default;
};

// Parses a file of subuid(5), and skips invalid lines. `number_of` returns a name's number, if it
// has one.
std::vector<IdRange> ParseIdRanges(
    const std::string& text,
    const std::function<std::optional<uint64_t>(const std::string& name)>& number_of);

// The files of this machine. They are read again when they have changed, which is checked once a
// second. Names are looked up in the password file alone, so no name service is waited for. Not
// thread-safe.
class SubordinateIds {
 public:
  // The files are for tests.
  explicit SubordinateIds(std::string users = "/etc/subuid", std::string groups = "/etc/subgid",
                          std::string passwords = "/etc/passwd");

  // The owner of the range that the id is in; nullopt: it is in none.
  std::optional<std::string> OwnerOfUser(uint64_t uid) { return OwnerIn(&users_, uid); }
  std::optional<std::string> OwnerOfGroup(uint64_t gid) { return OwnerIn(&groups_, gid); }

 private:
  struct File {
    std::string path;
    int64_t look_again_at = 0;
    int64_t changed_at = -1;  // as the kernel says; -1: not read, or missing
    std::vector<IdRange> ranges;
  };
  std::optional<std::string> OwnerIn(File* file, uint64_t id) const;
  void Refresh(File* file) const;

  const std::string passwords_;
  File users_;
  File groups_;
};

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_SUBORDINATE_IDS_H_
