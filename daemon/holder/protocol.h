// What a daemon and its holder say to each other: messages of one size over a SOCK_SEQPACKET Unix
// socket, some of them with one descriptor (SCM_RIGHTS).
//
//   daemon                                  holder
//     kPut NAME + descriptor  ------------>   keeps it; what had that name is closed
//     kRemove NAME            ------------>   closes it
//     kList                   ------------>
//                             <------------  kItem NAME + descriptor, for each it keeps
//                             <------------  kEnd, `count` of them
//     kFinish                 ------------>   closes all, and ends
//
// Only kList is answered. What was sent is kept, even if the daemon dies before the holder has read
// it.
//
// Magic, version and the size stay the same in all versions. A message of a version that the other
// side does not know changes nothing there: a holder answers with kOtherVersion in its own version,
// hangs up and holds what it has, for a daemon that speaks that version. So whoever learns of a
// later version goes on speaking the one before.
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

// A name that is none makes a message that Decode refuses.
Wire Encode(const Message& message);
// From bytes that may be anything of any length; nothing where they are no message of this version.
std::optional<Message> Decode(std::span<const std::byte> bytes);
// Of a message of any version; nothing where they are none.
std::optional<uint16_t> VersionOf(std::span<const std::byte> bytes);

}  // namespace geminid::holder

#endif  // GEMINID_DAEMON_HOLDER_PROTOCOL_H_
