// Whose the user and group ids are that a user may hand out to processes of its own.
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
  std::string owner;  // the number of a user, or its name where there is no such user
  bool operator==(const IdRange&) const = default;
};

// Of subuid(5). Lines that are none are passed over. `number_of` gives a name's number, if it has
// one.
std::vector<IdRange> ParseIdRanges(
    const std::string& text,
    const std::function<std::optional<uint64_t>(const std::string& name)>& number_of);

// The files of this machine. They are read again when they have changed, which is looked at once a
// second. Names are looked up in the password file alone: no name service is waited for.
// Not thread-safe.
class SubordinateIds {
 public:
  // The files are for tests.
  explicit SubordinateIds(std::string users = "/etc/subuid", std::string groups = "/etc/subgid",
                          std::string passwords = "/etc/passwd");

  // The owner of the range that the id is in; nothing: it is in none.
  std::optional<std::string> OwnerOfUser(uint64_t uid) { return OwnerIn(&users_, uid); }
  std::optional<std::string> OwnerOfGroup(uint64_t gid) { return OwnerIn(&groups_, gid); }

 private:
  struct File {
    std::string path;
    int64_t look_again_at = 0;
    int64_t changed_at = -1;  // as the kernel says; -1: not read, or not there
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
