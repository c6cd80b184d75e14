#include "daemon/service/calls/hello.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/shm/attach_messages.h"
#include "proto/shm/session_layout.h"

namespace geminid::service {
namespace {

// The first two words of every version.
struct Prefix {
  uint32_t magic;
  uint32_t protocol_version;
};

bool IsTerminated(const char (&text)[shm::kNameBytes]) {
  return std::find(std::begin(text), std::end(text), '\0') != std::end(text);
}

bool IsJobName(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

// The text is only shown, so unprintable characters become question marks.
std::string Printable(std::string text) {
  for (char& c : text) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return text;
}

// The versions that one side speaks: "version 3", or "versions 3 to 5".
std::string Named(const char* what, uint32_t oldest, uint32_t newest) {
  if (oldest == newest) return absl::StrCat(what, " ", newest);
  return absl::StrCat(what, "s ", oldest, " to ", newest);
}

// A range of versions that one side speaks.
struct Range {
  uint32_t oldest = 0;
  uint32_t newest = 0;
};
bool HaveOneInCommon(Range a, Range b) { return a.newest >= b.oldest && b.newest >= a.oldest; }

Range RangeOf(uint32_t newest, uint32_t oldest) { return {oldest == 0 ? newest : oldest, newest}; }

absl::Status OtherVersion(const char* does, const char* what, Range ours, Range theirs,
                          const char* of_client) {
  return absl::FailedPreconditionError(absl::StrCat(
      "this daemon ", does, " ", Named(what, ours.oldest, ours.newest), ", the client ",
      Named(of_client, theirs.oldest, theirs.newest), "; install the same release of both"));
}

absl::Status WrongSize(size_t bytes) {
  return absl::InvalidArgumentError(
      absl::StrCat("a hello of ", bytes, " bytes; expected ", sizeof(shm::Hello)));
}

absl::Status CheckVersions(std::span<const std::byte> message, size_t bytes, shm::Hello* hello) {
  Prefix prefix;
  if (message.size() < sizeof(prefix)) return WrongSize(bytes);
  std::memcpy(&prefix, message.data(), sizeof(prefix));
  if (prefix.magic != shm::kHelloMagic) {
    return absl::InvalidArgumentError("the first message is not a geminid hello");
  }
  // An older hello has another shape. A later one begins with the same fields.
  const uint32_t newest = prefix.protocol_version;
  const bool is_whole = newest == shm::kProtocolVersion ? bytes == sizeof(shm::Hello)
                                                        : message.size() >= sizeof(shm::Hello);
  std::memcpy(hello, message.data(), std::min(message.size(), sizeof(shm::Hello)));
  const bool says_oldest = newest > shm::kProtocolVersion && is_whole;
  const Range spoken = {shm::kOldestProtocolVersion, shm::kProtocolVersion};
  const Range theirs = RangeOf(newest, says_oldest ? hello->oldest_protocol_version : 0);
  if (!HaveOneInCommon(spoken, theirs)) {
    return OtherVersion("speaks", "protocol version", spoken, theirs, "version");
  }
  if (!is_whole) return WrongSize(bytes);
  const Range known = {shm::kOldestLayoutVersion, shm::kLayoutVersion};
  const Range theirs_known = RangeOf(hello->layout_version, hello->oldest_layout_version);
  if (HaveOneInCommon(known, theirs_known)) return absl::OkStatus();
  return OtherVersion("uses", "shared-memory layout", known, theirs_known, "layout");
}

}  // namespace

absl::StatusOr<core::SessionSpec> CheckHello(std::span<const std::byte> message, size_t bytes) {
  shm::Hello hello = {};
  if (absl::Status status = CheckVersions(message, bytes, &hello); !status.ok()) return status;
  if (hello.death_policy != shm::DeathPolicy::kFree &&
      hello.death_policy != shm::DeathPolicy::kKeep) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown death policy ", static_cast<uint32_t>(hello.death_policy)));
  }
  if (hello.world_size < 1 || hello.world_size > kMaxWorldSize || hello.rank < 0 ||
      hello.rank >= hello.world_size || hello.local_rank < 0 ||
      hello.local_rank >= hello.world_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", hello.rank, ", local rank ", hello.local_rank, " of world size ", hello.world_size,
        ": ranks count from 0, and the world has 1 to ", kMaxWorldSize, " of them"));
  }
  if (hello.local_world_size < 0 || hello.local_world_size > hello.world_size ||
      (hello.local_world_size > 0 && hello.local_rank >= hello.local_world_size)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "local rank ", hello.local_rank, " of ", hello.local_world_size, " ranks on this node, of ",
        hello.world_size,
        " in all: local ranks count from 0, and 0 ranks on the node mean that it is not known"));
  }
  if (!IsTerminated(hello.job) || !IsJobName(hello.job)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a job's name has 1 to ", shm::kNameBytes - 1,
                     " characters, each a lower-case letter, a digit or '-'"));
  }
  if (!IsTerminated(hello.client)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a client's name has at most ", shm::kNameBytes - 1, " characters"));
  }
  if (!IsTerminated(hello.run)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a run's name has at most ", shm::kNameBytes - 1, " characters"));
  }
  core::SessionSpec spec;
  spec.job = hello.job;
  spec.run = Printable(hello.run);
  spec.client = Printable(hello.client);
  spec.rank = hello.rank;
  spec.world_size = hello.world_size;
  spec.local_rank = hello.local_rank;
  spec.local_world_size = hello.local_world_size;
  spec.device = hello.device;
  spec.death_policy = hello.death_policy;
  return spec;
}

}  // namespace geminid::service
