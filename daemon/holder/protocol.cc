#include "daemon/holder/protocol.h"

#include <algorithm>
#include <cstring>

namespace geminid::holder {
namespace {

bool HasName(Op op) { return op == Op::kPut || op == Op::kRemove || op == Op::kItem; }

}  // namespace

bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return c > ' ' && c < '\x7f' && c != ':'; });
}

Wire Encode(const Message& message) {
  Wire wire = {};
  wire.magic = kMagic;
  wire.version = kVersion;
  wire.op = static_cast<uint16_t>(message.op);
  wire.count = message.count;
  if (IsName(message.name)) std::memcpy(wire.name, message.name.data(), message.name.size());
  return wire;
}

std::optional<Message> Decode(std::span<const std::byte> bytes) {
  if (VersionOf(bytes) != kVersion) return std::nullopt;
  Wire wire;
  std::memcpy(&wire, bytes.data(), sizeof(wire));
  if (wire.op > static_cast<uint16_t>(Op::kOtherVersion)) return std::nullopt;
  Message message;
  message.op = static_cast<Op>(wire.op);
  message.count = wire.count;
  if (message.op == Op::kNone) return std::nullopt;
  if (!HasName(message.op)) return message;
  message.name.assign(wire.name, ::strnlen(wire.name, sizeof(wire.name)));
  if (!IsName(message.name)) return std::nullopt;
  return message;
}

std::optional<uint16_t> VersionOf(std::span<const std::byte> bytes) {
  Wire wire;
  if (bytes.size() != sizeof(wire)) return std::nullopt;
  std::memcpy(&wire, bytes.data(), sizeof(wire));
  if (wire.magic != kMagic) return std::nullopt;
  return wire.version;
}

}  // namespace geminid::holder
