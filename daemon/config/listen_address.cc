#include "daemon/config/listen_address.h"

#include <netdb.h>

#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace geminid::config {
namespace {

// A name is not looked up: that would block, and depend on the network.
bool IsNumeric(const std::string& host) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return false;
  ::freeaddrinfo(list);
  return true;
}

}  // namespace

absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text) {
  ListenAddress address;
  if (text.empty() || text == "off") return address;
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(text.substr(colon + 1), &port) ||
      port > std::numeric_limits<uint16_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text,
                     "' is not ADDRESS:PORT, as in 127.0.0.1:9464, or off; port 0 takes any free "
                     "one"));
  }
  address.host = text.substr(0, colon);
  if (address.host.front() == '[' && address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
  }
  if (!IsNumeric(address.host)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", address.host,
        "' is not a numeric address; write 127.0.0.1 or [::1] for this machine alone, or "
        "0.0.0.0 for all networks"));
  }
  address.port = static_cast<uint16_t>(port);
  return address;
}

}  // namespace geminid::config
