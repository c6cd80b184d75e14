// Entries of systemd's journal with fields of their own, by its native protocol
// (systemd.io/JOURNAL_NATIVE_PROTOCOL): one datagram each.
#ifndef GEMINID_DAEMON_OS_JOURNAL_H_
#define GEMINID_DAEMON_OS_JOURNAL_H_

#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace geminid::os {

inline constexpr char kJournalSocket[] = "/run/systemd/journal/socket";
// The most bytes of a value. Even with a dozen fields a datagram then fits into any socket.
inline constexpr size_t kMostJournalValueBytes = 4096;

struct JournalField {
  std::string name;
  std::string value;
};

// "session" -> "GEMINID_SESSION": the journal takes capital letters, digits and '_', at most 64.
std::string JournalFieldName(const std::string& key);

// The datagram. A value with newlines keeps them, because it is sent with its length.
std::string JournalEntry(const std::vector<JournalField>& fields);

class Journal {
 public:
  enum class Result { kSent, kFull, kGone };

  // Connects to the journal at `path`; if there is none, every entry is kGone.
  explicit Journal(const std::string& path);

  // Thread-safe. Never waits: kFull if the journal does not read. kGone: it does not listen (any
  // more), or does not take this entry.
  Result Send(const std::string& entry) const;

 private:
  base::UniqueFd socket_;
};

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_JOURNAL_H_
