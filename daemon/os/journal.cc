#include "daemon/os/journal.h"

#include <sys/socket.h>

#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/system_error.h"
#include "daemon/os/unix_socket.h"

namespace geminid::os {
namespace {

constexpr char kPrefix[] = "GEMINID_";
constexpr size_t kMostNameBytes = 64;

std::string LittleEndian(uint64_t number) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(number); ++i) {
    bytes += static_cast<char>(number >> (8 * i) & 0xff);
  }
  return bytes;
}

}  // namespace

std::string JournalFieldName(const std::string& key) {
  std::string name = kPrefix;
  for (const char c : key.substr(0, kMostNameBytes - name.size())) {
    name += absl::ascii_isalnum(static_cast<unsigned char>(c))
                ? absl::ascii_toupper(static_cast<unsigned char>(c))
                : '_';
  }
  return name;
}

std::string JournalEntry(const std::vector<JournalField>& fields) {
  std::string entry;
  for (const JournalField& field : fields) {
    const std::string value = field.value.substr(0, kMostJournalValueBytes);
    if (value.find('\n') == std::string::npos) {
      absl::StrAppend(&entry, field.name, "=", value, "\n");
    } else {
      absl::StrAppend(&entry, field.name, "\n", LittleEndian(value.size()), value, "\n");
    }
  }
  return entry;
}

Journal::Journal(const std::string& path) {
  absl::StatusOr<base::UniqueFd> socket = ConnectUnix(SOCK_DGRAM, path);
  if (socket.ok()) socket_ = *std::move(socket);
}

Journal::Result Journal::Send(const std::string& entry) const {
  if (!socket_.valid()) return Result::kGone;
  const ssize_t sent = base::RetryOnEintr([&] {
    return ::send(socket_.get(), entry.data(), entry.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  });
  if (sent >= 0) return Result::kSent;
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ? Result::kFull
                                                                     : Result::kGone;
}

}  // namespace geminid::os
