// An address to listen on: "127.0.0.1:9464", "[::1]:0" or "off".
#ifndef GEMINID_DAEMON_CONFIG_LISTEN_ADDRESS_H_
#define GEMINID_DAEMON_CONFIG_LISTEN_ADDRESS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace geminid::config {

struct ListenAddress {
  std::string host;  // without brackets; empty: the daemon does not listen
  uint16_t port = 0;
};

// For "off" and "" the host is empty. INVALID_ARGUMENT says what an address looks like.
absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_LISTEN_ADDRESS_H_
