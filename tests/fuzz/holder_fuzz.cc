// What a daemon may send to its holder, and the holder to it.
#include <cstring>
#include <span>

#include "daemon/holder/protocol.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using geminid::fuzz::Require;
  namespace holder = geminid::holder;
  const auto message = holder::Decode(std::as_bytes(std::span(data, size)));
  if (!message.has_value()) return 0;
  Require(message->name.empty() || holder::IsName(message->name), "a name is one");
  const holder::Wire wire = holder::Encode(*message);
  const auto again = holder::Decode(std::as_bytes(std::span(&wire, 1)));
  Require(again.has_value() && *again == *message, "what was read can be written and read again");
  return 0;
}
