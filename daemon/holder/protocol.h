// The protocol between a daemon and its holder: messages of one size over a SOCK_SEQPACKET Unix
// socket, some of them with one descriptor (SCM_RIGHTS).
//
//   daemon                                  holder
//     kPut NAME + descriptor  ------------>   stores it; closes an earlier one of that name
//     kRemove NAME            ------------>   closes it
//     kList                   ------------>
//                             <------------  kItem NAME + descriptor, for each that is stored
//                             <------------  kEnd, `count` of them
//     kFinish                 ------------>   closes all, and ends
//
// Only kList is answered. A descriptor that was sent is stored, even if the daemon dies before the
// holder has read the message.
//
// Magic, version and size are the same in all versions. A message of an unknown version changes
// nothing: a holder answers with kOtherVersion in its own version, hangs up, and holds its
// descriptors for a daemon of that version. So a release that knows a later version must still
// speak the one before.
#ifndef GEMINID_DAEMON_HOLDER_PROTOCOL_H_
#define GEMINID_DAEMON_HOLDER_PROTOCOL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace geminid::holder {

inline constexpr uint32_t kMagic = 0x444c4847;  // "GHLD"
inline constexpr uint16_t kVersion = 1;
// systemd's FDNAME= has the same rules: printable, no colon.
inline constexpr size_t kMaxNameBytes = 111;

enum class Op : uint16_t {
  kNone = 0,
  kPut = 1,
  kRemove = 2,
  kList = 3,
  kItem = 4,
  kEnd = 5,
  kFinish = 6,
  kOtherVersion = 7
};

struct Message {
  Op op = Op::kNone;
  std::string name{};  // of kPut, kRemove and kItem
  uint32_t count = 0;  // of kEnd
  bool operator==(const Message&) const = default;
};

struct Wire {
  uint32_t magic;
  uint16_t version;
  uint16_t op;
  uint32_t count;
  uint32_t reserved;
  char name[kMaxNameBytes + 1];  // zero-padded
};
static_assert(sizeof(Wire) == 128);

bool IsName(const std::string& name);

// An invalid name makes a message that Decode refuses.
Wire Encode(const Message& message);
// `bytes` may be anything of any length; nullopt: they are no message of this version.
std::optional<Message> Decode(std::span<const std::byte> bytes);
// The version of a message of any version; nullopt: `bytes` are no message.
std::optional<uint16_t> VersionOf(std::span<const std::byte> bytes);

}  // namespace geminid::holder

#endif  // GEMINID_DAEMON_HOLDER_PROTOCOL_H_
